/* The machine the program runs on, and the context on it that the user asked for. */
#include "cli.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int cli_context(gs_context **out, const cli_machine *machine)
{
    const unsigned have = gs_cpu_detect();
    unsigned use = machine->cpu == 0 ? have : 0; /* 0: auto, 1: ref, then the flags in order */
    if (machine->cpu > 1) {
        const unsigned flag = 1u << (machine->cpu - 2);
        if (!(have & flag))
            return cli_fail("--cpu %s: this CPU has no such instructions", gs_cpu_name(flag));
        use = flag | (flag - 1);
    }
    const gs_config config = {.threads = (unsigned)machine->threads, .without_cpu = ~use};
    const gs_status status = gs_context_create(out, &config);
    return status == GS_OK ? CLI_GO : cli_fail_status(status, NULL);
}

unsigned cli_cpus(void)
{
    const long online = sysconf(_SC_NPROCESSORS_ONLN);
    return online > 0 ? (unsigned)online : 1;
}

/* Linux says it in a line "model name : ..."; elsewhere, and on CPUs without one, it is unknown. */
const char *cli_cpu_model(char buffer[128])
{
    char line[256];
    FILE *f = fopen("/proc/cpuinfo", "r");
    snprintf(buffer, 128, "unknown");
    while (f && fgets(line, sizeof line, f)) {
        const char *colon = strchr(line, ':');
        if (strncmp(line, "model name", 10) != 0 || !colon)
            continue;
        line[strcspn(line, "\n")] = 0;
        snprintf(buffer, 128, "%.127s", colon + 1 + strspn(colon + 1, " "));
        break;
    }
    if (f)
        fclose(f);
    cli_clean(buffer);
    return buffer;
}

const char *cli_compiler(void)
{
#if defined(__clang__)
    return "clang " __clang_version__;
#elif defined(__GNUC__)
    return "gcc " __VERSION__;
#else
    return "unknown";
#endif
}

/* The machine the program runs on, and the context on it that the user asked for. */
#include "cli/core/cli.h"

#include <math.h>
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
    const gs_config config = {
        .size = sizeof config, .threads = (unsigned)machine->threads, .without_cpu = ~use};
    const gs_status status = gs_context_create(out, &config, NULL);
    return status == GS_OK ? CLI_GO : cli_fail_status(status, NULL);
}

const char *cli_kernels(unsigned cpu)
{
    const char *name = "ref";
    for (unsigned i = 0; i < GS_CPU_COUNT; i++)
        if (cpu & 1u << i)
            name = gs_cpu_name(1u << i);
    return name;
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

/* The number after `label` in a file, or at its beginning; infinite if there is none ("max"). */
static double number_in(const char *path, const char *label)
{
    char line[256];
    double value = HUGE_VAL;
    FILE *f = fopen(path, "r");
    while (f && fgets(line, sizeof line, f))
        if (strncmp(line, label, strlen(label)) == 0) {
            char *end;
            const char *const digits = line + strlen(label);
            const double number = strtod(digits, &end);
            if (end != digits)
                value = number;
            break;
        }
    if (f)
        fclose(f);
    return value;
}

double cli_load(void)
{
    const double load = number_in("/proc/loadavg", "");
    return isfinite(load) ? load : (double)NAN;
}

/* Of the machine, and of the container where there is one (the two versions of Linux's cgroups). */
double cli_memory_free(void)
{
    static const struct {
        const char *limit, *used;
    } groups[] = {
        {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"},
        {"/sys/fs/cgroup/memory/memory.limit_in_bytes",
         "/sys/fs/cgroup/memory/memory.usage_in_bytes"},
    };
    double least = 1024 * number_in("/proc/meminfo", "MemAvailable:");
    for (size_t i = 0; i < sizeof groups / sizeof groups[0]; i++) {
        const double limit = number_in(groups[i].limit, ""), used = number_in(groups[i].used, "");
        if (isfinite(limit) && isfinite(used))
            least = fmin(least, fmax(limit - used, 0));
    }
    return least;
}

/* (getrusage would tell that of the process that started this one, if it was larger.) */
double cli_memory_peak(void)
{
    const double peak = 1024 * number_in("/proc/self/status", "VmHWM:");
    return isfinite(peak) ? peak : (double)NAN;
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

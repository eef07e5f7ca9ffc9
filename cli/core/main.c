#include "cli/core/cli.h"
#include "cli/core/commands.h"

#include "gradscale/base.h"

#include <signal.h>
#include <stdio.h>

static const cli_command commands[] = {
#define X(name, summary) {#name, summary, cmd_##name},
    COMMANDS(X)
#undef X
        {0}};

static int run(int argc, char **argv)
{
    bool version = false;
    const cli_option options[] = {
        {"version", NULL, "print the version", CLI_FLAG(&version), .letter = 'V'}, {0}};
    const cli_spec spec = {.name = "gradscale",
                           .operands = "COMMAND ...",
                           .about = "Loss scaling for mixed-precision training.",
                           .options = options,
                           .commands = commands};
    const int code = cli_parse(&spec, &argc, argv);
    if (code != CLI_GO)
        return code;
    if (version) {
        printf("gradscale %s\n", gs_version());
        return CLI_DONE;
    }
    return cli_run(&spec, argc, argv);
}

int main(int argc, char **argv)
{
    signal(SIGXFSZ, SIG_IGN); /* too large a file is a write error like any other */
    cli_begin();
    return cli_end(argc > 0 ? run(argc - 1, argv + 1) : CLI_BAD);
}

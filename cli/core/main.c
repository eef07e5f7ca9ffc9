#include "cli/core/cli.h"
#include "cli/core/commands.h"

#include "gradscale/base.h"

#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

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

/* Memory that ends is not to look like a file that is no JSON. */
static void *new_block(size_t size) { return cli_resize(NULL, size); }

int main(int argc, char **argv)
{
    signal(SIGXFSZ, SIG_IGN); /* too large a file is a write error like any other */
    cli_begin();
    json_set_alloc_funcs(new_block, free);
    return cli_end(argc > 0 ? run(argc - 1, argv + 1) : CLI_BAD);
}

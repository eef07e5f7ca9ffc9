#include "cli.h"
#include "commands.h"

int cmd_info(int argc, char **argv)
{
    const cli_spec spec = {.name = "gradscale info", .about = "Shows the number formats."};
    const int code = cli_parse(&spec, &argc, argv);
    if (code != CLI_GO)
        return code;
    cli_table *t = cli_table_new((const char *const[]){"<format", ">bits", ">max", NULL});
    for (int d = 0; d < GS_DTYPE_COUNT; d++) {
        const gs_format *f = gs_format_of((gs_dtype)d);
        cli_table_cell(t, "%s", f->name);
        cli_table_cell(t, "%zu", 8 * f->bytes);
        cli_table_cell(t, "%.6g", f->max);
    }
    cli_table_print(t, stdout);
    return CLI_DONE;
}

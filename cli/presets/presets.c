/* gradscale presets: the presets and their parameters. Schema: doc/json-presets.md. */
#include "cli/core/cli.h"
#include "cli/core/commands.h"
#include "cli/core/json.h"

#include "gradscale/scaler.h"

#include <string.h>

enum { VALUE = 64 };

static void print_json(const char *const *names, size_t n)
{
    json_writer j;
    char value[VALUE];
    put_begin(&j, stdout, true);
    put_object(&j, NULL);
    for (size_t i = 0; i < n; i++) {
        gs_params p;
        gs_params_preset(&p, names[i], NULL);
        put_object(&j, names[i]);
        for (size_t k = 0; gs_param_key(k); k++) {
            gs_params_get(value, sizeof value, &p, gs_param_key(k), NULL);
            put_string(&j, gs_param_key(k), value);
        }
        put_end(&j);
    }
    put_end(&j);
}

/* What differs from the defaults, in the words of --set. */
static void print_text(const char *const *names, size_t n)
{
    gs_params defaults, p;
    char usual[VALUE], value[VALUE];
    gs_params_default(&defaults);
    cli_table *t =
        cli_table_new((const char *const[]){"<preset", "<differs from the defaults in", NULL});
    cli_table_cell(t, "defaults");
    char line[2048] = "";
    for (size_t k = 0; gs_param_key(k); k++) {
        gs_params_get(value, sizeof value, &defaults, gs_param_key(k), NULL);
        snprintf(line + strlen(line), sizeof line - strlen(line), "%s%s=%s", k ? " " : "",
                 gs_param_key(k), value);
    }
    cli_table_cell(t, "%s", line);
    for (size_t i = 0; i < n; i++) {
        line[0] = 0;
        gs_params_preset(&p, names[i], NULL);
        for (size_t k = 0; gs_param_key(k); k++) {
            gs_params_get(usual, sizeof usual, &defaults, gs_param_key(k), NULL);
            gs_params_get(value, sizeof value, &p, gs_param_key(k), NULL);
            if (strcmp(usual, value) != 0)
                snprintf(line + strlen(line), sizeof line - strlen(line), "%s%s=%s",
                         line[0] ? " " : "", gs_param_key(k), value);
        }
        cli_table_cell(t, "%s", names[i]);
        cli_table_cell(t, "%s", line);
    }
    cli_table_print(t, stdout);
}

int cmd_presets(int argc, char **argv)
{
    bool json = false;
    const char *names[256];
    size_t n = 0;
    const cli_option options[] = {
        {"json", NULL, "print JSON; its schema is in doc/json-presets.md", CLI_FLAG(&json)}, {0}};
    const cli_spec spec = {.name = "gradscale presets",
                           .operands = "[PRESET...]",
                           .about = "Shows the presets of the scaler: every parameter of the one "
                                    "machine that makes it step as a framework does.",
                           .options = options,
                           .max_operands = 255};
    const int code = cli_parse(&spec, &argc, argv);
    if (code != CLI_GO)
        return code;
    for (int i = 0; i < argc; i++) {
        gs_params p;
        gs_error error;
        if (gs_params_preset(&p, argv[i], &error) != GS_OK)
            return cli_fail("%s", error.text);
        names[n++] = argv[i];
    }
    while (argc == 0 && n < 255 && gs_preset_name(n)) {
        names[n] = gs_preset_name(n);
        n++;
    }
    (json ? print_json : print_text)(names, n);
    return CLI_DONE;
}

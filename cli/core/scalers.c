/* Names of scalers and of their settings, for error messages. */
#include "cli/core/cli.h"

#include "gradscale/optim.h"

#include <string.h>

int cli_fail_scaler(const char *option, const char *name, const gs_error *error)
{
    static const char *const others[] = {"headroom", "logmax", "adaptive",   "histogram",
                                         "guard",    "none",   "static:1024"};
    const char *names[256];
    size_t n = 0;
    for (; n < 200 && gs_preset_name(n); n++)
        names[n] = gs_preset_name(n);
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        names[n++] = others[i];
    const char *nearest = error->status == GS_ENAME ? cli_nearest(name, names, n) : NULL;
    if (nearest && strcmp(nearest, name) != 0)
        return cli_fail("%s%sunknown scaler '%.60s', did you mean '%s'?", option,
                        *option ? ": " : "", name, nearest);
    return cli_fail("%s%s%s", option, *option ? ": " : "", error->text);
}

int cli_fail_set(const gs_scaler *scaler, bool optim, const gs_error *error)
{
    enum { KEYS = 128 };
    const char *keys[KEYS];
    char key[64];
    size_t n = 0;
    if (error->status != GS_ENAME || sscanf(error->text, "unknown key '%63[^']'", key) != 1)
        return cli_fail("--set: %s", error->text);
    for (size_t i = 0; n < KEYS && gs_scaler_key(scaler, i); i++)
        keys[n++] = gs_scaler_key(scaler, i);
    for (size_t i = 0; optim && n < KEYS && gs_optim_key(i); i++)
        keys[n++] = gs_optim_key(i);
    const char *nearest = cli_nearest(key, keys, n);
    if (nearest)
        return cli_fail("--set: %s, did you mean '%s'?", error->text, nearest);
    return cli_fail("--set: %s; %s", error->text,
                    optim ? "doc/scaler.md and doc/optim.md list them"
                          : "doc/scaler.md lists them");
}

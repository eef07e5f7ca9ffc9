/* Names of scalers, for error messages. */
#include "cli/core/cli.h"

#include "gradscale/scaler.h"

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

/* Libraries that are opened when a device is made: no program needs them to start. */
#include "device/device.h"

#include <dlfcn.h>
#include <string.h>

void *gsi_library_open(const char *name, const gsi_symbol *symbols, size_t n, gs_error *error)
{
    void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        const char *why = dlerror();
        gsi_fail(error, GS_EIO, "%.80s cannot be opened: %.120s", name,
                 why ? why : "no reason given");
        return NULL;
    }
    for (size_t i = 0; i < n; i++) {
        void *function = dlsym(library, symbols[i].name);
        if (!function) {
            gsi_fail(error, GS_EVERSION, "%.80s has no %s: the driver is too old", name,
                     symbols[i].name);
            dlclose(library);
            return NULL;
        }
        memcpy(symbols[i].to, &function, sizeof function);
    }
    return library;
}

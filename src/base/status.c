#include "base/base.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const struct {
    const char *name, *meaning;
} statuses[] = {
#define X(name, meaning) {#name, meaning},
    GS_STATUSES(X)
#undef X
};

const char *gs_status_name(gs_status status)
{
    return (unsigned)status < GS_STATUS_COUNT ? statuses[status].name : "UNKNOWN";
}

const char *gs_status_meaning(gs_status status)
{
    return (unsigned)status < GS_STATUS_COUNT ? statuses[status].meaning : "an unknown status";
}

gs_status gsi_fail(gs_error *error, gs_status status, const char *format, ...)
{
    if (error) {
        va_list args;
        va_start(args, format);
        error->status = status;
        vsnprintf(error->text, sizeof error->text, format, args);
        va_end(args);
    }
    return status;
}

gs_status gsi_config(void *today, size_t size, const void *given, const char *type, gs_error *error)
{
    size_t its;
    memcpy(&its, given, sizeof its);
    if (its <= sizeof its || its % sizeof its != 0)
        return gsi_fail(error, GS_EVERSION, "%s.size is %zu: set it to sizeof(%s)", type, its,
                        type);
    if (its > size)
        return gsi_fail(error, GS_EVERSION,
                        "%s has %zu bytes, and version %s of the library knows %zu: the program was"
                        " compiled against a newer header",
                        type, its, gs_version(), size);
    memset(today, 0, size);
    memcpy(today, given, its);
    memcpy(today, &size, sizeof size);
    return GS_OK;
}

#define STRING2(x) #x
#define STRING(x)  STRING2(x)

const char *gs_version(void)
{
    return STRING(GS_VERSION_MAJOR) "." STRING(GS_VERSION_MINOR) "." STRING(GS_VERSION_PATCH);
}

int gs_version_number(void) { return GS_VERSION_NUMBER; }

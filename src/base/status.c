#include "base/base.h"

#include <stdarg.h>
#include <stdio.h>

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

#define STRING2(x) #x
#define STRING(x)  STRING2(x)

const char *gs_version(void)
{
    return STRING(GS_VERSION_MAJOR) "." STRING(GS_VERSION_MINOR) "." STRING(GS_VERSION_PATCH);
}

/* Any bytes as the log of a report: refused, or a page. */
#define _GNU_SOURCE
#include "fuzz.h"

#include "cli/core/cli.h"
#include "cli/report/report.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static int began;
    if (!began) {
        began = 1;
        cli_hold(true);
    }
    const char *const log = file_of(data, n);
    const int code = report_write("/dev/null", &log, 1, NULL);
    if (code != CLI_DONE && !*cli_held())
        abort();
    return 0;
}

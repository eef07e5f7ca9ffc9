/* Any bytes as a config file of train, and as its command line: refused with an error message, or
 * taken. */
#define _GNU_SOURCE
#include "fuzz.h"

#include "cli/train/train.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    enum { WORDS = 16, LONGEST = 2048 };
    static char text[LONGEST + 1], checkpoint[4096];
    static train_options before;
    static int began;
    if (!began) {
        before = train_given;
        began = 1;
        cli_hold(true);
        if (!freopen("/dev/null", "w", stdout))
            abort();
    }
    if (n == 0 || n > LONGEST)
        return 0;
    memcpy(text, data + 1, n - 1);
    text[n - 1] = 0;
    train_given = before;
    if (data[0] % 2) { /* words between newlines */
        char *argv[WORDS + 1] = {0}, *at = text;
        int argc = 0;
        while (argc < WORDS && (argv[argc] = strsep(&at, "\n")))
            argc++;
        const int code = train_parse(argc, argv, checkpoint, sizeof checkpoint);
        if (code == CLI_GO)
            train_check(&train_given);
        else if (code != CLI_DONE && !*cli_held())
            abort();
    } else if (strlen(text) == n - 1) {
        const int code = cli_config_read_text(train_rows, text, "fuzz");
        if (code != CLI_GO && (code != CLI_BAD || !*cli_held()))
            abort();
    }
    return 0;
}

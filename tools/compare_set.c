/* The runs of a comparison, from a list like fp32,fp16:none,fp16:pytorch:O1:attribute. */
#include "compare.h"

#include "gradscale/scaler.h"

#include <ctype.h>
#include <string.h>

const char COMPARE_DEFAULT[] = "fp32,fp16:none,fp16:static:1024,fp16:pytorch,fp16:headroom,bf16:guard";

static bool begins(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

/* Takes the words off a run, "fp16:static:1024:O1": the first is the precision; a number belongs
 * to the word before it; what is neither a mode nor something to do on overflow is the scaler. */
static int read_run(compare_run *run, const char *text)
{
    char word[40], *into = NULL;
    size_t room = 0;
    *run = (compare_run){.mode = "auto"};
    for (int i = 0; *text; i++) {
        const size_t n = strcspn(text, ":");
        if (n == 0 || n >= sizeof word)
            return cli_fail("--runs: '%.60s' has a word that is empty or too long", text);
        snprintf(word, sizeof word, "%.*s", (int)n, text);
        text += n + (text[n] == ':');
        const bool is_number = isdigit((unsigned char)word[0]) || word[0] == '.';
        if (i > 0 && is_number && into) {
            const size_t used = strlen(into);
            snprintf(into + used, room - used, ":%s", word);
            into = NULL;
            continue;
        }
        if (i == 0) {
            if (cli_read_choice("fp32|fp16|bf16", word) < 0)
                return cli_fail("--runs: a run begins with fp32, fp16 or bf16, not with '%.40s'",
                                word);
            snprintf(run->precision, sizeof run->precision, "%s", word);
        } else if (cli_read_choice("O0|O1|O2|O3", word) >= 0) {
            snprintf(run->mode, sizeof run->mode, "%s", word);
        } else if (cli_read_choice("skip|retry|attribute", word) >= 0) {
            into = strcpy(run->how, word);
            room = sizeof run->how;
        } else if (run->scaler[0]) {
            return cli_fail("--runs: '%.40s' is a second scaler beside '%s'", word, run->scaler);
        } else if (strlen(word) >= sizeof run->scaler) {
            return cli_fail("--runs: unknown scaler '%.60s'", word);
        } else {
            into = strcpy(run->scaler, word);
            room = sizeof run->scaler;
        }
    }
    return CLI_GO;
}

/* The name of a scaler is known before the first run has been waited for. */
static int check_scaler(const compare_run *run)
{
    char name[sizeof run->scaler];
    gs_scaler scaler;
    gs_error error;
    snprintf(name, sizeof name, "%.*s", (int)strcspn(run->scaler, ":"), run->scaler);
    if (gs_scaler_init(&scaler, name, &error) != GS_OK)
        return cli_fail("--runs: %s", error.text);
    return CLI_GO;
}

static void name_run(compare_run *run, bool has_scaler)
{
    snprintf(run->name, sizeof run->name, "%s%s%s%s%s%s%s", run->precision, has_scaler ? " " : "",
             has_scaler ? run->scaler : "", strcmp(run->mode, "auto") == 0 ? "" : " ",
             strcmp(run->mode, "auto") == 0 ? "" : run->mode, *run->how ? " " : "", run->how);
}

int compare_set_read(compare_all *c, const char *list)
{
    char item[128];
    int more;
    c->n = 0;
    while ((more = cli_next_item(&list, item, sizeof item)) == 1) {
        if (c->n == COMPARE_RUNS)
            return cli_fail("--runs: more than %d runs", COMPARE_RUNS);
        compare_run *run = &c->runs[c->n];
        int code = read_run(run, item);
        if (code != CLI_GO)
            return code;
        const bool has_scaler = run->scaler[0] != 0;
        if (!has_scaler) /* what needs no scale is checked only */
            strcpy(run->scaler, begins(run->precision, "fp16") ? "pytorch" : "guard");
        code = check_scaler(run);
        if (code != CLI_GO)
            return code;
        name_run(run, has_scaler);
        for (size_t i = 0; i < c->n; i++)
            if (strcmp(c->runs[i].name, run->name) == 0)
                return cli_fail("--runs: '%s' is there twice", run->name);
        c->n++;
    }
    if (more < 0)
        return cli_fail("--runs: an item of the list is empty or too long");
    return CLI_GO;
}

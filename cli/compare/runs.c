/* The runs of a comparison, from a list like fp32,fp16:none,fp16:pytorch:O1:attribute. */
#include "cli/compare/compare.h"

#include "gradscale/scaler.h"

#include <ctype.h>
#include <string.h>

const char COMPARE_DEFAULT[] =
    "fp32,fp16:none,fp16:static:1024,fp16:pytorch,fp16:headroom,bf16:guard";

/* text becomes "text<separator>word". */
static void add_word(char *text, size_t size, char separator, const char *word)
{
    const size_t used = strlen(text), n = strlen(word);
    if (used + n + 2 > size)
        return; /* the words of a run fit */
    text[used] = separator;
    memcpy(text + used + 1, word, n + 1);
}

/* Where a word of a run belongs: the first is the precision, a number goes with the word before
 * it, and what is neither a mode nor quantisation nor something to do on overflow is the scaler. */
static int read_run(compare_run *run, const char *text)
{
    char word[COMPARE_WORD], *before = NULL;
    *run = (compare_run){0};
    for (const char *rest = text; *rest;) {
        const size_t n = strcspn(rest, ":");
        if (n == 0 || n >= sizeof word)
            return cli_fail("--runs: '%.60s' has a word that is empty or too long", text);
        snprintf(word, sizeof word, "%.*s", (int)n, rest);
        rest += n + (rest[n] == ':');
        if (before && isdigit((unsigned char)word[0])) {
            add_word(before, COMPARE_PAIR, ':', word);
            before = NULL;
        } else if (!run->precision[0]) {
            if (cli_read_choice("fp32|fp16|bf16", word) < 0)
                return cli_fail("--runs: a run begins with fp32, fp16 or bf16, not with '%s'",
                                word);
            strcpy(run->precision, word);
        } else if (cli_read_choice("O0|O1|O2|O3", word) >= 0) {
            strcpy(run->mode, word);
        } else if (cli_read_choice("int8|ptq", word) >= 0) {
            strcpy(run->quantize, word);
        } else if (cli_read_choice("skip|retry|attribute", word) >= 0) {
            before = strcpy(run->how, word);
        } else if (run->scaler[0]) {
            return cli_fail("--runs: '%s' is a second scaler beside '%s'", word, run->scaler);
        } else {
            before = strcpy(run->scaler, word);
        }
    }
    return CLI_GO;
}

/* That there is such a scaler is known before the first run has been waited for. */
static int check_scaler(const compare_run *run)
{
    gs_scaler scaler;
    gs_error error;
    if (gs_scaler_init(&scaler, run->scaler, &error) != GS_OK)
        return cli_fail_scaler("--runs", run->scaler, &error);
    return CLI_GO;
}

/* What was said of it, with blanks: "fp16 static:1024 O1". */
static void name_run(compare_run *run)
{
    strcpy(run->name, run->precision);
    if (run->scaler[0])
        add_word(run->name, sizeof run->name, ' ', run->scaler);
    if (run->mode[0])
        add_word(run->name, sizeof run->name, ' ', run->mode);
    if (run->how[0])
        add_word(run->name, sizeof run->name, ' ', run->how);
    if (run->quantize[0])
        add_word(run->name, sizeof run->name, ' ', run->quantize);
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
        name_run(run);
        if (!run->scaler[0]) /* what needs no scale is checked only */
            strcpy(run->scaler, strcmp(run->precision, "fp16") == 0 ? "pytorch" : "guard");
        if (!run->mode[0] && strcmp(run->precision, "fp32") == 0)
            strcpy(run->mode, "auto"); /* --mode is for the half types */
        code = check_scaler(run);
        if (code != CLI_GO)
            return code;
        for (size_t i = 0; i < c->n; i++)
            if (strcmp(c->runs[i].name, run->name) == 0)
                return cli_fail("--runs: '%s' is there twice", run->name);
        c->n++;
    }
    if (more < 0)
        return cli_fail("--runs: an item of the list is empty or too long");
    return CLI_GO;
}

/* gradscale generate: a GPT goes on with a text, a token at a time, each printed as it comes. */
#include "cli/core/commands.h"
#include "cli/use/use.h"

#include <stdlib.h>
#include <string.h>

typedef struct options {
    const char *prompt, *prompt_file;
    uint64_t tokens, top_k, seed;
    double temperature, top_p;
    cli_list stop;
    bool stats, no_prompt;
    use_options use;
} options;

/* The text so far, prompt included. */
typedef struct story {
    int32_t *ids; /* [n] */
    size_t n, room;
    char *tail; /* [length] bytes that were generated: what `stop` is looked for in */
    size_t length, tail_room;
    uint64_t generated, moved; /* moved: bytes of weights, keys and values that were read */
    double seconds;
} story;

/* ---- printing ---- */

/* Where the first of the stops begins in what is not yet shown, which ends with a whole token and
 * so not always with the stop; s->length: nowhere. */
static size_t stop_in(const story *s, size_t shown, const cli_list *stop)
{
    for (size_t at = shown; at < s->length; at++)
        for (size_t i = 0; i < stop->count; i++) {
            const size_t n = strlen(stop->items[i]);
            if (n <= s->length - at && memcmp(s->tail + at, stop->items[i], n) == 0)
                return at;
        }
    return s->length;
}

/* How much of the end may yet become a stop, and is not to be shown before. */
static size_t undecided(const story *s, const cli_list *stop)
{
    size_t most = 0;
    for (size_t i = 0; i < stop->count; i++)
        for (size_t n = strlen(stop->items[i]); n-- > 1;)
            if (n > most && s->length >= n &&
                memcmp(s->tail + s->length - n, stop->items[i], n) == 0)
                most = n;
    return most;
}

/* How many bytes at the end are the beginning of a character, which a terminal is to get whole. */
static size_t unfinished(const char *text, size_t n)
{
    for (size_t back = 1; back <= 3 && back <= n; back++) {
        const unsigned char c = (unsigned char)text[n - back];
        if ((c & 0xC0) != 0x80)
            return c >= 0xC2 && c <= 0xF4 &&
                           back < (c >= 0xF0   ? 4u
                                   : c >= 0xE0 ? 3u
                                               : 2u)
                       ? back
                       : 0;
    }
    return 0;
}

/* ---- the loop ---- */

static void append(story *s, const use_model *u, int32_t token)
{
    size_t n;
    const char *text = use_token_text(u, token, &n);
    if (s->n == s->room)
        s->ids = cli_resize(s->ids, (s->room = 2 * s->room + 64) * sizeof *s->ids);
    s->ids[s->n++] = token;
    if (s->length + n > s->tail_room)
        s->tail = cli_resize(s->tail, s->tail_room = 2 * (s->tail_room + n) + 256);
    memcpy(s->tail + s->length, text, n);
    s->length += n;
}

/* The logits after the text so far. A cache that is full begins anew with the later half of its
 * tokens: learned positions cannot be moved. */
static gs_status logits_of(const float **logits, const use_model *u, gs_kv_cache *cache, story *s,
                           size_t *fed)
{
    const size_t context = u->model->context;
    if (s->n - *fed + gs_kv_cache_length(cache) > context) {
        gs_kv_cache_truncate(cache, 0);
        const size_t keep = context / 2 ? context / 2 : 1;
        *fed = s->n > keep ? s->n - keep : 0;
    }
    const gs_status status = gs_infer_next(logits, u->infer, cache, s->ids + *fed, s->n - *fed);
    *fed = s->n;
    return status;
}

static int run(story *s, const use_model *u, const options *o)
{
    const gs_sampling_config how = {.size = sizeof how,
                                    .temperature = o->temperature,
                                    .top_k = (size_t)o->top_k,
                                    .top_p = o->top_p < 1 ? o->top_p : 0,
                                    .seed = o->seed};
    gs_kv_cache *cache;
    const float *logits = NULL;
    size_t fed = 0, shown = 0;
    bool stopped = false;
    gs_status status = gs_kv_cache_create(&cache, u->infer);
    if (status == GS_OK)
        status = logits_of(&logits, u, cache, s, &fed);
    const double start = gs_clock();
    while (status == GS_OK && s->generated < o->tokens) {
        int32_t token;
        status = gs_sample(&token, u->ctx, logits, u->info->classes, &how, s->generated);
        if (status != GS_OK)
            break;
        append(s, u, token);
        s->generated++;
        size_t ready = stop_in(s, shown, &o->stop);
        stopped = ready < s->length;
        if (!stopped)
            ready -= undecided(s, &o->stop);
        if (!stopped && ready > shown)
            ready -= unfinished(s->tail + shown, ready - shown);
        if (ready > shown) {
            use_print(s->tail + shown, ready - shown);
            shown = ready;
        }
        if (stopped || !cli_flush() || s->generated == o->tokens)
            break;
        status = logits_of(&logits, u, cache, s, &fed);
        s->moved += gs_infer_bytes(u->infer) + gs_kv_cache_bytes(cache);
    }
    if (status == GS_OK && !stopped)
        use_print(s->tail + shown, s->length - shown);
    s->seconds = gs_clock() - start;
    gs_kv_cache_free(cache);
    return status == GS_OK ? CLI_GO : cli_fail_status(status, gs_context_error(u->ctx));
}

/* ---- the command ---- */

static int begin(story *s, const use_model *u, const options *o)
{
    size_t length = 0;
    char *text = NULL;
    if (o->prompt && o->prompt_file)
        return cli_fail("--prompt and --prompt-file are two ways to say one thing");
    if (o->prompt_file &&
        !(text = use_read_file("--prompt-file: ", o->prompt_file, USE_TEXT, &length)))
        return CLI_BAD;
    const char *prompt = text ? text : o->prompt ? o->prompt : "\n";
    if (!text)
        length = strlen(prompt);
    const int code = use_tokens(&s->ids, &s->n, u, prompt, length);
    s->room = s->n;
    if (code == CLI_GO && !o->no_prompt && (text || o->prompt))
        use_print(prompt, length);
    free(text);
    if (code != CLI_GO)
        return code;
    return s->n > 0 ? CLI_GO : cli_fail("the prompt is empty: there is nothing to go on with");
}

static void show_stats(const story *s, const use_model *u)
{
    const double steps = (double)(s->generated > 1 ? s->generated - 1 : 1);
    fprintf(stderr, "%llu token%s in %.2f s: %.1f tokens/s, %.1f GB/s of weights and cache (%s)\n",
            (unsigned long long)s->generated, cli_s(s->generated), s->seconds, steps / s->seconds,
            (double)s->moved / s->seconds / 1e9, u->precision);
}

int cmd_generate(int argc, char **argv)
{
    options o = {.tokens = 256, .temperature = 0.8, .top_p = 1, .seed = 1};
    const cli_option rows[] = {
        {"prompt", "TEXT", "what to go on with; not given: a newline", CLI_STRING(&o.prompt)},
        {"prompt-file", "FILE", "the same from a file; -: from standard input",
         CLI_STRING(&o.prompt_file)},
        {"no-prompt", NULL, "print what is generated alone", CLI_FLAG(&o.no_prompt)},
        {"tokens", "N", "to generate, at most", CLI_UNSIGNED(&o.tokens), .min = 1, .max = 1e9},
        {"temperature", "T", "divides the logits; 0: always the most likely token",
         CLI_DOUBLE(&o.temperature), .max = 1000},
        {"top-k", "K", "draw from the K most likely tokens; 0: from all", CLI_UNSIGNED(&o.top_k),
         .max = 1e9},
        {"top-p", "P", "draw from the fewest that have this probability together",
         CLI_DOUBLE(&o.top_p), .min = 1e-6, .max = 1},
        {"seed", "N", "another seed is another text", CLI_UNSIGNED(&o.seed), .max = 0x1p53},
        {"stop", "TEXT", "ends the text before it; may be repeated", CLI_LIST(&o.stop)},
        {"stats", NULL, "print tokens/s and bytes/s to standard error", CLI_FLAG(&o.stats)},
        USE_ROWS(&o.use),
        {0}};
    const cli_spec spec = {.name = "gradscale generate",
                           .operands = "CHECKPOINT",
                           .about = "Lets a trained GPT go on with a text, token by token, with a "
                                    "cache of keys and values. A seed gives the same text on every "
                                    "machine. A text longer than the context goes on from the "
                                    "later half of it.",
                           .options = rows,
                           .min_operands = 1,
                           .max_operands = 1};
    int code = cli_parse(&spec, &argc, argv);
    if (code != CLI_GO)
        return code;
    use_model u;
    story s = {0};
    code = use_open(&u, argv[0], &o.use);
    if (code == CLI_GO)
        code = use_check_text(&u);
    if (code == CLI_GO)
        code = begin(&s, &u, &o);
    if (code == CLI_GO)
        code = run(&s, &u, &o);
    if (code == CLI_GO) {
        putchar('\n');
        cli_flush();
        if (o.stats)
            show_stats(&s, &u);
        code = CLI_DONE;
    }
    free(s.ids);
    free(s.tail);
    use_close(&u);
    return code;
}

/* gradscale tokenize encode, decode. */
#include "cli/tokenize/tokenize.h"

#include <stdlib.h>
#include <string.h>

/* ---- text into tokens ---- */

static void put_word(unsigned char *p, uint32_t x)
{
    for (int i = 0; i < 4; i++)
        p[i] = (unsigned char)(x >> 8 * i);
}

static int write_tokens(const char *path, const int32_t *ids, size_t n, const gs_tokenizer *t)
{
    if (gs_tokenizer_size(t) > TOKENS_MOST)
        return cli_fail("--out: the tokenizer has %zu tokens, and a token file holds 16 bits: %d "
                        "of them",
                        gs_tokenizer_size(t), TOKENS_MOST);
    const size_t bytes = TOKENS_HEADER + 2 * n;
    unsigned char *file = cli_resize(NULL, bytes);
    memset(file, 0, TOKENS_HEADER);
    put_word(file, TOKENS_MAGIC);
    put_word(file + 4, TOKENS_VERSION);
    put_word(file + 8, (uint32_t)n);
    for (size_t i = 0; i < n; i++) {
        file[TOKENS_HEADER + 2 * i] = (unsigned char)ids[i];
        file[TOKENS_HEADER + 2 * i + 1] = (unsigned char)(ids[i] >> 8);
    }
    const int code = cli_save(path, file, bytes);
    free(file);
    return code;
}

typedef struct sums {
    size_t bytes;
    double seconds;
} sums;

/* Of several files each is followed by <|endoftext|>, as in a folder that train reads. */
static int encode_files(int32_t **ids, size_t *n, sums *s, gs_tokenizer *t, int argc, char **argv)
{
    int code = CLI_GO;
    for (int i = 0; i < argc && code == CLI_GO; i++) {
        gs_error error = {0};
        size_t length = 0;
        char *text = use_read_file("", argv[i], TOKENIZE_TEXT, &length);
        if (!text)
            return CLI_BAD;
        const double start = gs_clock();
        const gs_status status = use_encode(ids, n, t, text, length, &error);
        if (status != GS_OK)
            code = cli_fail_input(argv[i], status, &error);
        s->seconds += gs_clock() - start;
        s->bytes += length;
        free(text);
        if (code == CLI_GO && argc > 1 && gs_tokenizer_end(t) >= 0)
            (*ids)[(*n)++] = gs_tokenizer_end(t);
    }
    return code;
}

int tokenize_encode(int argc, char **argv)
{
    const char *path = NULL;
    bool stats = false;
    const cli_option rows[] = {
        {"out", "FILE.bin", "a token file for train --data; not given: numbers to standard output",
         CLI_STRING(&path)},
        {"stats", NULL, "print bytes per token and MB/s to standard error", CLI_FLAG(&stats)},
        {0}};
    const cli_spec spec = {
        .name = "gradscale tokenize encode",
        .operands = "TOKENIZER TEXT...",
        .about = "Makes tokens of text files; -: of standard input. Of several files each is "
                 "followed by <|endoftext|>, if the tokenizer has it. Added tokens in the text "
                 "become theirs. Bytes that are not UTF-8 are encoded one by one.",
        .options = rows,
        .min_operands = 2,
        .max_operands = CLI_ANY};
    int code = cli_parse(&spec, &argc, argv);
    if (code != CLI_GO)
        return code;
    gs_tokenizer *t = NULL;
    int32_t *ids = NULL;
    size_t n = 0;
    sums s = {0};
    code = tokenize_open(&t, argv[0]);
    if (code == CLI_GO)
        code = encode_files(&ids, &n, &s, t, argc - 1, argv + 1);
    if (code == CLI_GO && path)
        code = write_tokens(path, ids, n, t);
    if (code == CLI_GO && path)
        cli_show_saved(path);
    for (size_t i = 0; code == CLI_GO && !path && i < n; i++)
        printf(i ? " %d" : "%d", (int)ids[i]);
    if (code == CLI_GO && !path)
        putchar('\n');
    if (code == CLI_GO && stats)
        fprintf(stderr, "%zu bytes, %zu tokens, %.2f bytes per token, %.1f MB/s\n", s.bytes, n,
                n ? (double)s.bytes / (double)n : 0.0, (double)s.bytes / s.seconds / 1e6);
    free(ids);
    gs_tokenizer_free(t);
    return code == CLI_GO ? CLI_DONE : code;
}

/* ---- tokens into text ---- */

static uint32_t word_at(const unsigned char *p)
{
    return p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static bool is_token_file(const char *bytes, size_t n)
{
    return n >= 4 && word_at((const unsigned char *)bytes) == TOKENS_MAGIC;
}

/* The tokens of a file one after the other: read_next is 1, 0 at its end, -1 after an error. */
typedef struct numbers {
    const char *path, *bytes;
    size_t length, at, count;
    bool binary;
} numbers;

static int begin(numbers *f, const char *path, const char *bytes, size_t length)
{
    *f = (numbers){.path = path, .bytes = bytes, .length = length};
    f->binary = is_token_file(bytes, length);
    if (!f->binary)
        return CLI_GO;
    const unsigned char *p = (const unsigned char *)bytes;
    if (length < TOKENS_HEADER || word_at(p + 4) != TOKENS_VERSION ||
        length - TOKENS_HEADER != 2 * (size_t)word_at(p + 8))
        return cli_fail("%.120s: is no whole token file of version %d: %zu bytes", path,
                        TOKENS_VERSION, length);
    f->at = TOKENS_HEADER;
    return CLI_GO;
}

static int read_next(numbers *f, int32_t *id)
{
    if (f->binary && f->at < f->length) {
        const unsigned char *p = (const unsigned char *)f->bytes + f->at;
        *id = p[0] | p[1] << 8;
        f->at += 2;
        f->count++;
        return 1;
    }
    f->at += strspn(f->bytes + f->at, " \t\r\n,[]");
    if (f->at >= f->length)
        return 0;
    const char *digits = f->bytes + f->at;
    const size_t n = strspn(digits, "0123456789");
    f->count++;
    if (n == 0 || n > 9)
        return -1;
    *id = (int32_t)strtol(digits, NULL, 10);
    f->at += n;
    return 1;
}

static int decode_file(FILE *to, const gs_tokenizer *t, const char *path)
{
    numbers f;
    size_t length = 0;
    int32_t id = 0;
    char *bytes = use_read_file("", path, TOKENIZE_TEXT, &length);
    if (!bytes)
        return CLI_BAD;
    int code = begin(&f, path, bytes, length), more = 0;
    while (code == CLI_GO && (more = read_next(&f, &id)) > 0) {
        size_t n;
        const char *text = gs_tokenizer_token(t, id, &n);
        if (!text)
            code = cli_fail("%.120s: token %zu is %d, and the tokenizer has %zu", path, f.count - 1,
                            (int)id, gs_tokenizer_size(t));
        else if (to)
            fwrite(text, 1, n, to);
        else
            use_print(text, n);
    }
    if (code == CLI_GO && more < 0)
        code = cli_fail("%.120s: token %zu is not a number", path, f.count - 1);
    free(bytes);
    return code;
}

int tokenize_decode(int argc, char **argv)
{
    const char *path = NULL;
    const cli_option rows[] = {
        {"out", "FILE", "where the text goes; not given: to standard output", CLI_STRING(&path)},
        {0}};
    const cli_spec spec = {
        .name = "gradscale tokenize decode",
        .operands = "TOKENIZER TOKENS",
        .about = "Makes text of tokens again: of a token file of llm.c, or of numbers with blanks "
                 "between them; -: of standard input. The bytes are those that were encoded.",
        .options = rows,
        .min_operands = 2,
        .max_operands = 2};
    int code = cli_parse(&spec, &argc, argv);
    if (code != CLI_GO)
        return code;
    gs_tokenizer *t = NULL;
    char *text = NULL;
    size_t size = 0;
    FILE *to = path ? cli_text_begin(&text, &size) : NULL;
    code = tokenize_open(&t, argv[0]);
    if (code == CLI_GO)
        code = decode_file(to, t, argv[1]);
    if (to)
        cli_text_end(to);
    if (code == CLI_GO && path)
        code = cli_save(path, text, size);
    if (code == CLI_GO && path)
        cli_show_saved(path);
    free(text);
    gs_tokenizer_free(t);
    return code == CLI_GO ? CLI_DONE : code;
}

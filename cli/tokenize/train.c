/* gradscale tokenize train. */
#include "cli/tokenize/tokenize.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static int write_files(const char *folder, const gs_tokenizer *t)
{
    if (strlen(folder) + 32 > 4096)
        return cli_fail("--out: %.120s...: the path is too long", folder);
    if (mkdir(folder, 0777) != 0 && errno != EEXIST)
        return cli_fail("--out: %.120s cannot be made: %s", folder, strerror(errno));
    return train_tokenizer_write(folder, t);
}

static void show(const gs_tokenizer *t, uint64_t asked, const gs_text *texts, size_t n,
                 double seconds, const char *folder)
{
    size_t bytes = 0;
    for (size_t i = 0; i < n; i++)
        bytes += texts[i].length;
    char size[48];
    printf("%zu tokens from %s of text in %.2g s\n", gs_tokenizer_size(t),
           cli_bytes_text(size, bytes), seconds);
    if (gs_tokenizer_size(t) < asked)
        printf("%llu were asked for: no other pair occurs often enough\n",
               (unsigned long long)asked);
    cli_print("saved      %s: tokenizer.json, vocab.json and merges.txt\n", folder);
}

static int learn(const char *folder, const gs_tokenizer_config *config, gs_text *texts, size_t n,
                 char **names)
{
    gs_error error = {0};
    gs_tokenizer *t = NULL;
    for (size_t i = 0; i < n; i++)
        if (!(texts[i].bytes = use_read_file("", names[i], TOKENIZE_TEXT, &texts[i].length)))
            return CLI_BAD;
    const double start = gs_clock();
    const gs_status status = gs_tokenizer_train(&t, config, texts, n, NULL, &error);
    if (status != GS_OK)
        return cli_fail_status(status, &error);
    const double seconds = gs_clock() - start;
    const int code = write_files(folder, t);
    if (code == CLI_GO)
        show(t, config->tokens, texts, n, seconds, folder);
    gs_tokenizer_free(t);
    return code;
}

int tokenize_train(int argc, char **argv)
{
    const char *folder = NULL;
    uint64_t tokens = 8192, least = 2;
    const cli_option rows[] = {
        {"size", "N", "tokens: 256 bytes, merges, <|endoftext|> as the last", CLI_UNSIGNED(&tokens),
         .min = 257, .max = GS_TOKENIZER_TOKENS},
        {"least", "N", "how often a pair must occur", CLI_UNSIGNED(&least), .min = 1, .max = 1e12},
        {"out", "DIR", "where tokenizer.json, vocab.json and merges.txt go", CLI_STRING(&folder)},
        {0}};
    const cli_spec spec = {
        .name = "gradscale tokenize train",
        .operands = "TEXT...",
        .about = "Learns a tokenizer from text files: the pair of tokens that occurs most often in "
                 "words becomes a token, again and again. The same text gives the same tokenizer, "
                 "with the merges that Hugging Face's trainer finds, and their programs load it.",
        .options = rows,
        .min_operands = 1,
        .max_operands = CLI_ANY};
    int code = cli_parse(&spec, &argc, argv);
    if (code != CLI_GO)
        return code;
    if (!folder)
        return cli_fail("--out DIR is needed: where the tokenizer goes");
    const gs_tokenizer_config config = {
        .size = sizeof config, .tokens = (size_t)tokens, .least = least};
    gs_text *texts = cli_resize(NULL, (size_t)argc * sizeof *texts);
    memset(texts, 0, (size_t)argc * sizeof *texts);
    code = learn(folder, &config, texts, (size_t)argc, argv);
    for (int i = 0; i < argc; i++)
        free((char *)texts[i].bytes);
    free(texts);
    return code == CLI_GO ? CLI_DONE : code;
}

#include "cli/tokenize/tokenize.h"
#include "cli/core/commands.h"

#include <stdlib.h>
#include <string.h>

int tokenize_open(gs_tokenizer **out, const char *path)
{
    gs_error error = {0};
    const gs_status status = gs_tokenizer_open(out, path, NULL, &error);
    return status == GS_OK ? CLI_GO : cli_fail("%s", error.text);
}

int tokenize_write(const char *path, const void *bytes, size_t n)
{
    bool opened;
    const int why = cli_write_file(path, bytes, n, &opened);
    if (why == 0)
        return CLI_GO;
    return (opened ? cli_failed : cli_fail)("%.120s cannot be written: %s", path, strerror(why));
}

int tokenize_text(int32_t **ids, size_t *n, gs_tokenizer *t, const gs_text *text, const char *name)
{
    gs_error error = {0};
    size_t room = text->length + 2, more = 0; /* one is left for the end of the text */
    gs_status status = GS_ESIZE;
    while (status == GS_ESIZE) {
        *ids = cli_resize(*ids, (*n + room) * sizeof **ids);
        status =
            gs_tokenizer_encode(*ids + *n, room - 1, &more, t, text->bytes, text->length, &error);
        if (more < room)
            break;
        room = more + 1;
    }
    *n += more;
    return status == GS_OK ? CLI_GO : cli_fail("%.120s: %s", name, error.text);
}

static const cli_command commands[] = {
    {"train", "learn a tokenizer of N tokens from text", tokenize_train},
    {"encode", "text into tokens, as numbers or as a file for train --data", tokenize_encode},
    {"decode", "tokens into text", tokenize_decode},
    {0}};

int cmd_tokenize(int argc, char **argv)
{
    const cli_spec spec = {
        .name = "gradscale tokenize",
        .operands = "COMMAND ...",
        .about = "Byte-level BPE, as GPT-2's: the tokens are those of Hugging Face's tokenizers. A "
                 "tokenizer is a tokenizer.json, a vocab.json with merges.txt beside it, or a "
                 "folder with either.",
        .commands = commands};
    const int code = cli_parse(&spec, &argc, argv);
    return code == CLI_GO ? cli_run(&spec, argc, argv) : code;
}

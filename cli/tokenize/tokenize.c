#include "cli/tokenize/tokenize.h"
#include "cli/core/commands.h"

int tokenize_open(gs_tokenizer **out, const char *path)
{
    gs_error error = {0};
    const gs_status status = gs_tokenizer_open(out, path, NULL, &error);
    return status == GS_OK ? CLI_GO : cli_fail_input("", status, &error);
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

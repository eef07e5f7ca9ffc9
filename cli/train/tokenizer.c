/* How text becomes tokens: a file of --tokenizer, what lies beside the weights of --init, or what a
 * checkpoint has inside. */
#include "cli/logs/logs.h"
#include "cli/train/train.h"

#include "gradscale/io.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* A file of a tokenizer as text, to be freed, after an error too. */
static int text_of(char **text, const gs_tokenizer *tokenizer, gs_tokenizer_file file)
{
    size_t n = 0;
    gs_error error = {0};
    *text = NULL;
    gs_status status = gs_tokenizer_text(NULL, 0, &n, tokenizer, file, &error);
    if (status == GS_ESIZE) {
        *text = cli_resize(NULL, n + 1);
        status = gs_tokenizer_text(*text, n + 1, NULL, tokenizer, file, &error);
    }
    return status == GS_OK ? CLI_GO : cli_fail_status(status, &error);
}

int train_tokenizer_write(const char *folder, const gs_tokenizer *tokenizer)
{
    static const struct {
        const char *name;
        gs_tokenizer_file file;
    } files[] = {{"vocab.json", GS_VOCAB_JSON},
                 {"merges.txt", GS_MERGES_TXT},
                 {"tokenizer.json", GS_TOKENIZER_JSON}};
    char path[4096];
    int code = CLI_GO;
    for (size_t i = 0; i < sizeof files / sizeof files[0] && code == CLI_GO; i++) {
        char *text;
        code = text_of(&text, tokenizer, files[i].file);
        snprintf(path, sizeof path, "%s/%s", folder, files[i].name);
        if (code == CLI_GO)
            code = cli_save(path, text, strlen(text));
        free(text);
    }
    return code;
}

static const char instead_of_pickle[] = "save its state_dict with safetensors.torch.save_file";

static bool is_folder(const char *path)
{
    struct stat about;
    return stat(path, &about) == 0 && S_ISDIR(about.st_mode);
}

/* What cannot be examined may be there: opening it tells. */
static bool may_be_there(const char *path)
{
    return access(path, F_OK) == 0 || (errno != ENOENT && errno != ENOTDIR);
}

gs_status train_best_path(char path[4096], const char *folder, gs_error *error)
{
    const int n = snprintf(path, 4096, "%s/best.safetensors", folder);
    if (n > 0 && n < 4096 && may_be_there(path))
        return GS_OK;
    return gs_saver_newest(path, 4096, folder, error);
}

/* A folder of Hugging Face's without a model.safetensors: what it has instead, if it has it. */
static int refuse_folder(const char *init)
{
    char path[4096 + 32];
    snprintf(path, sizeof path, "%s/model.safetensors.index.json", init);
    if (access(path, F_OK) == 0)
        return cli_fail("--init: %.120s: its weights are in several files, and one is read: save "
                        "it with a larger max_shard_size",
                        init);
    snprintf(path, sizeof path, "%s/pytorch_model.bin", init);
    const int code = logs_refuse_pickle(path, instead_of_pickle);
    return code != CLI_GO
               ? code
               : cli_fail("--init: %.120s: holds neither a model.safetensors nor a checkpoint",
                          init);
}

int train_init_path(char path[4096], const char *init)
{
    static bool told;
    gs_error error = {0};
    const int n = snprintf(path, 4096, "%s%s", init, is_folder(init) ? "/model.safetensors" : "");
    if (n <= 0 || n >= 4096)
        return cli_fail("--init: the path is too long");
    if (!is_folder(init))
        return logs_refuse_pickle(path, instead_of_pickle);
    if (may_be_there(path))
        return CLI_GO;
    const gs_status status = train_best_path(path, init, &error);
    if (status == GS_OK && error.status != GS_OK && !told)
        cli_warn("--init: %s", error.text); /* a newer one is damaged */
    told = true;
    return status == GS_OK      ? CLI_GO
           : status == GS_ENAME ? refuse_folder(init)
                                : cli_fail_input("--init", status, &error);
}

static int of_files(char **text, const char *option, const char *path)
{
    gs_error error = {0};
    gs_tokenizer *tokenizer;
    const gs_status status = gs_tokenizer_open(&tokenizer, path, NULL, &error);
    if (status != GS_OK)
        return cli_fail_input(option, status, &error);
    const int code = text_of(text, tokenizer, GS_TOKENIZER_JSON);
    gs_tokenizer_free(tokenizer);
    return code;
}

/* What is wrong with the file is told where it is loaded; memory may suffice there again. */
static int of_checkpoint(char **text, const char *path)
{
    gs_source *file = NULL;
    gs_data_info *info = NULL;
    gs_error error = {0};
    gs_status status = gs_source_open(&file, path, NULL, &error);
    const char *about = status == GS_OK ? gs_source_metadata(file, "data") : NULL;
    if (about)
        status = gs_data_info_read(&info, about, NULL, &error);
    if (info && info->tokenizer && strcmp(info->tokenizer, "bytes") != 0) {
        *text = cli_resize(NULL, strlen(info->tokenizer) + 1);
        strcpy(*text, info->tokenizer);
    }
    gs_data_info_free(info);
    gs_source_close(file);
    return status == GS_ENOMEM ? cli_fail_status(status, &error) : CLI_GO;
}

static bool has_tokenizer(const char *folder)
{
    static const char *const names[] = {"tokenizer.json", "vocab.json"};
    char path[4096];
    bool found = false;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const int n = snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        found |= n > 0 && (size_t)n < sizeof path && may_be_there(path);
    }
    return found;
}

int train_tokenizer(char **text, const train_options *o, const char *checkpoint)
{
    *text = NULL;
    if (*checkpoint)
        return of_checkpoint(text, checkpoint);
    if (o->tokenizer)
        return of_files(text, "--tokenizer", o->tokenizer);
    if (!o->init)
        return CLI_GO;
    if (is_folder(o->init) && has_tokenizer(o->init))
        return of_files(text, "--init", o->init);
    char path[4096];
    const int code = train_init_path(path, o->init);
    return code == CLI_GO ? of_checkpoint(text, path) : code;
}

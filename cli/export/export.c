/* gradscale export: a trained model for other programs. */
#include "cli/export/export.h"
#include "cli/core/commands.h"
#include "cli/core/html.h"
#include "cli/core/json.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static bool ends_with(const char *text, const char *end)
{
    const size_t n = strlen(text), m = strlen(end);
    return n > m && strcmp(text + n - m, end) == 0;
}

static int export_safetensors(const char *path, const use_model *u)
{
    gs_error error = {0};
    const int why = train_check_file(path);
    if (why != 0)
        return cli_fail("%.120s cannot be written: %s", path, strerror(why));
    const gs_status status = gs_infer_export(path, u->infer, &error);
    return status == GS_OK ? CLI_GO : cli_fail_status(status, &error);
}

static bool is_tied(const use_model *u) { return !u->o.head || strcmp(u->o.head, "tied") == 0; }

/* The rows of a weight by its name's end: hidden units, which a default of the library may be. */
static size_t rows_of(const use_model *u, const char *end)
{
    for (size_t i = 0; i < u->model->n; i++)
        if (ends_with(u->model->entries[i].name, end))
            return u->model->entries[i].rows;
    return 0;
}

/* One token for both: between texts. */
static void put_end_of_text(json_writer *j, const use_model *u)
{
    const int32_t token = u->tokenizer ? gs_tokenizer_end(u->tokenizer) : -1;
    for (int i = 0; i < 2; i++) {
        const char *key = i ? "eos_token_id" : "bos_token_id";
        if (token < 0)
            put_null(j, key);
        else
            put_u64(j, key, (uint64_t)token);
    }
}

/* As transformers' LlamaForCausalLM.from_pretrained reads it. */
static void llama_config(FILE *f, const void *model)
{
    const use_model *u = model;
    json_writer j;
    put_begin(&j, f, true);
    put_object(&j, NULL);
    put_array(&j, "architectures");
    put_string(&j, NULL, "LlamaForCausalLM");
    put_end(&j);
    put_string(&j, "model_type", "llama");
    put_u64(&j, "vocab_size", u->info->classes);
    put_u64(&j, "max_position_embeddings", u->model->context);
    put_u64(&j, "hidden_size", u->o.width);
    put_u64(&j, "intermediate_size", rows_of(u, "mlp.up_proj.weight"));
    put_u64(&j, "num_hidden_layers", u->o.layers);
    put_u64(&j, "num_attention_heads", u->o.heads);
    put_u64(&j, "num_key_value_heads", u->model->kv_heads);
    put_u64(&j, "head_dim", u->model->kv_width);
    put_string(&j, "hidden_act", "silu");
    put_double(&j, "rms_norm_eps", 1e-5);
    put_double(&j, "rope_theta", isnan(u->o.rope_theta) ? 10000 : u->o.rope_theta);
    put_bool(&j, "attention_bias", false);
    put_bool(&j, "mlp_bias", false);
    put_double(&j, "attention_dropout", 0);
    put_bool(&j, "tie_word_embeddings", is_tied(u));
    put_string(&j, "torch_dtype", "float32");
    put_end_of_text(&j, u);
    put_end(&j);
}

/* As transformers' GPT2LMHeadModel.from_pretrained reads it. */
static void gpt_config(FILE *f, const void *model)
{
    const use_model *u = model;
    json_writer j;
    put_begin(&j, f, true);
    put_object(&j, NULL);
    put_array(&j, "architectures");
    put_string(&j, NULL, "GPT2LMHeadModel");
    put_end(&j);
    put_string(&j, "model_type", "gpt2");
    put_u64(&j, "vocab_size", u->info->classes);
    put_u64(&j, "n_positions", u->model->context);
    put_u64(&j, "n_ctx", u->model->context);
    put_u64(&j, "n_embd", u->o.width);
    put_u64(&j, "n_layer", u->o.layers);
    put_u64(&j, "n_head", u->o.heads);
    put_u64(&j, "n_inner", rows_of(u, "mlp.c_fc.weight"));
    put_string(&j, "activation_function", "gelu_new");
    put_double(&j, "layer_norm_epsilon", 1e-5);
    put_double(&j, "embd_pdrop", u->o.dropout);
    put_double(&j, "resid_pdrop", u->o.dropout);
    put_double(&j, "attn_pdrop", 0);
    put_bool(&j, "tie_word_embeddings", is_tied(u));
    put_string(&j, "torch_dtype", "float32");
    put_end_of_text(&j, u);
    put_end(&j);
}

/* What the checkpoint says of model and data: for whoever builds the model again. */
static void plain_config(FILE *f, const void *model)
{
    const use_model *u = model;
    json_writer j;
    put_begin(&j, f, true);
    put_object(&j, NULL);
    put_string(&j, "model", u->line);
    put_u64(&j, "height", u->info->height);
    put_u64(&j, "width", u->info->width);
    put_u64(&j, "channels", u->info->channels);
    put_u64(&j, "classes", u->info->classes);
    for (int i = 0; u->info->mean && i < 2; i++) {
        put_array(&j, i ? "inverse_std" : "mean");
        for (size_t c = 0; c < u->info->channels; c++)
            put_double(&j, NULL, (i ? u->info->inverse_std : u->info->mean)[c]);
        put_end(&j);
    }
    if (u->info->labels) {
        put_array(&j, "labels");
        for (size_t c = 0; c < u->info->classes; c++)
            put_string(&j, NULL, u->info->labels[c]);
        put_end(&j);
    }
    put_end(&j);
}

static int export_folder(const char *folder, const use_model *u)
{
    char path[4096];
    if (mkdir(folder, 0777) != 0 && errno != EEXIST)
        return cli_fail("%.120s cannot be made: %s", folder, strerror(errno));
    if (strlen(folder) + 32 > sizeof path)
        return cli_fail("%.120s...: the path is too long", folder);
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    int code = export_safetensors(path, u);
    if (code == CLI_GO && u->tokenizer)
        code = train_tokenizer_write(folder, u->tokenizer);
    if (code != CLI_GO)
        return code;
    snprintf(path, sizeof path, "%s/config.json", folder);
    const bool text = u->info->task == GS_TASK_TOKENS;
    return html_write("", path,
                      text && train_is_gpt2(&u->o)    ? gpt_config
                      : text && train_is_llama(&u->o) ? llama_config
                                                      : plain_config,
                      u);
}

/* An export is no checkpoint: written over one it would be the end of the run. */
static int check_output(const char *path)
{
    static gs_checkpoint_text text;
    char best[4096];
    gs_error error = {0};
    struct stat s;
    if (!*path)
        return cli_fail("the name of what to write (OUT) is empty");
    if ((ends_with(path, ".pt") || ends_with(path, ".pth") || ends_with(path, ".bin")) &&
        (stat(path, &s) != 0 || !S_ISDIR(s.st_mode)))
        return cli_fail("%.120s: pickles of PyTorch are not written: name it .safetensors, which "
                        "safetensors.torch.load_file reads",
                        path);
    if (gs_checkpoint_peek(&text, path, &error) == GS_OK)
        return cli_fail("%.120s is a checkpoint, which an export would replace: name another file",
                        path);
    if (train_best_path(best, path, &error) == GS_OK)
        return cli_fail("%.120s is the folder of a run, whose --init would take the export: name "
                        "another",
                        path);
    return CLI_GO;
}

static void show_saved(const char *path, const use_model *u)
{
    static const char *const names[] = {"model.safetensors", "config.json", "tokenizer.json",
                                        "vocab.json", "merges.txt"};
    char file[4096 + 32];
    if (ends_with(path, ".onnx") || ends_with(path, ".safetensors")) {
        cli_show_saved(path);
        return;
    }
    for (int i = 0; i < (u->tokenizer ? 5 : 2); i++) {
        snprintf(file, sizeof file, "%s/%s", path, names[i]);
        cli_show_saved(file);
    }
}

int cmd_export(int argc, char **argv)
{
    use_options o = {.precision = 1 + TRAIN_FP32};
    bool quiet = false;
    const cli_option rows[] = {
        CLI_MACHINE_ROWS(&o.machine),
        {"quiet", NULL, "print nothing but errors", CLI_FLAG(&quiet), .letter = 'q'},
        {0}};
    const cli_spec spec = {
        .name = "gradscale export",
        .operands = "CHECKPOINT OUT",
        .about = "Writes a trained model for other programs, in f32. OUT.onnx: a graph for ONNX "
                 "runtimes; of a model that was trained with --quantize a QDQ graph, with weights "
                 "in INT8. OUT.safetensors: the weights, named and laid out as PyTorch has them. "
                 "Any other OUT is a folder: model.safetensors and config.json, of a GPT as "
                 "Hugging Face's transformers load them, with its tokenizer.",
        .options = rows,
        .min_operands = 2,
        .max_operands = 2};
    int code = cli_parse(&spec, &argc, argv);
    if (code != CLI_GO)
        return code;
    use_model u;
    code = use_open(&u, argv[0], &o);
    if (code == CLI_GO)
        code = check_output(argv[1]);
    if (code == CLI_GO)
        code = ends_with(argv[1], ".onnx")          ? export_onnx(argv[1], &u)
               : ends_with(argv[1], ".safetensors") ? export_safetensors(argv[1], &u)
                                                    : export_folder(argv[1], &u);
    if (code == CLI_GO && !quiet)
        show_saved(argv[1], &u);
    use_close(&u);
    return code == CLI_GO ? CLI_DONE : code;
}

/* use.h: a model of a checkpoint, for the commands that use it: eval, predict, generate, export.
 *
 *     use_model u;
 *     int code = use_open(&u, "run/best.safetensors", &options);
 *     ... u.infer, u.info ...
 *     use_close(&u);
 *
 * A checkpoint says all that is needed: its model, and of its data the sizes, the normalisation,
 * the names of classes and the tokenizer. */
#ifndef USE_H
#define USE_H

#include "cli/train/train.h"

#include "gradscale/infer.h"

typedef struct use_options {
    int precision;      /* index in USE_PRECISIONS */
    bool int8;          /* products in INT8 arithmetic, of a model that was not trained so, too */
    const char *ranges; /* how it is then calibrated */
    cli_machine machine;
} use_options;

#define USE_PRECISIONS "auto|fp16|bf16|fp32"
#define USE_ROWS(u)                                                                        \
    {"precision", USE_PRECISIONS, "auto: as it was trained", CLI_CHOICE(&(u)->precision)}, \
        CLI_MACHINE_ROWS(&(u)->machine)

typedef struct use_model {
    char path[4096];
    gs_context *ctx;
    gs_model *model;
    gs_infer *infer;
    const train_model *kind;
    train_options o;         /* with which it was trained */
    gs_data_info *info;      /* of the data it was trained on */
    char *about;             /* the same as text, for gs_data_config.like */
    gs_tokenizer *tokenizer; /* NULL: tokens are bytes, or nobody knows */
    char line[GS_CHECKPOINT_LINE];
    const char *precision; /* "bf16" */
    bool quantized, int8;  /* it runs in integers; in INT8 arithmetic */
} use_model;

/* path: a checkpoint, or a folder of them: its best, or else its newest. CLI_GO or the exit code
 * after an error; to be closed in either case. */
int use_open(use_model *u, const char *path, const use_options *options);
void use_close(use_model *u);

/* Other data, as the model wants them. Given nothing: those it was trained on. */
int use_data(gs_data **out, const use_model *u, const char *name, const char *labels);
/* Images alone. */
int use_images(gs_data **out, const use_model *u, const char *name);

/* The name of a class, or its number in `number`. The second is fit for a terminal, in `shown`. */
const char *use_label(const use_model *u, size_t class, char number[24]);
const char *use_label_shown(const use_model *u, size_t class, char shown[24]);

/* Reads all of a file, or of standard input where path is "-", up to `most` bytes; to be freed.
 * NULL: an error was printed, which begins with the option ("--file: ", or ""). */
enum { USE_TEXT = 64 << 20 }; /* of one text */
char *use_read_file(const char *option, const char *path, size_t most, size_t *length);
/* To standard output; on a terminal without controls but newlines and tabs, since a model may say
 * anything. */
void use_print(const char *text, size_t n);

/* ---- answers ---- */

/* The largest logit of a row, the first of equals: what training counts as the answer. */
size_t use_answer(const gs_value *logits, size_t row);
/* p[classes] of a row: softmax in f64. */
void use_softmax(double *p, const gs_value *logits, size_t row);

/* ---- tokens ---- */

/* Whether text can be made tokens for this model; else an error was printed. */
int use_check_text(const use_model *u);
/* Appends the tokens of a text to ids[*n], which grows, and has room for one more. */
gs_status use_encode(int32_t **ids, size_t *n, gs_tokenizer *t, const char *text, size_t length,
                     gs_error *error);
/* ids[*n], to be freed, after an error too. CLI_GO or the exit code. */
int use_tokens(int32_t **ids, size_t *n, const use_model *u, const char *text, size_t length);
/* The bytes of a token, *n of them. */
const char *use_token_text(const use_model *u, int32_t token, size_t *n);

#endif

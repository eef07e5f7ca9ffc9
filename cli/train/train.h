/* train.h: `gradscale train`: what was asked for, the job that is made of it, and its parts.
 *
 *     options.c      the table, which also reads and writes config files
 *     resume.c       which of a checkpoint's options may change
 *     paths.c        what is to be written, looked at before
 *     model.c        what each model needs and how it begins best
 *     tokenizer.c    how text becomes tokens
 *     init.c         whether the weights of --init were trained as this model
 *     resolve.c      opens the data and fills in what was left open
 *     job.c          model, trainer, loader, log, checkpoints, put together
 *     folder.c       runs/NAME-DATE, for a run that names no folder
 *     loop.c         steps, validations, signals
 *     save.c         checkpoints: what is on the disk, and what is tried again
 *     valid.c        validation
 *     log.c          what the loop tells the log
 *     ranks.c        the ranks of a run, and how they speak
 *     agree.c        whether all of them have the same job
 *     train_text.c   what people see: heading, progress, summary
 *     dry.c          the dry run
 */
#ifndef TRAIN_TOOL_H
#define TRAIN_TOOL_H

#include "cli/core/cli.h"

#include "gradscale/checkpoint.h"
#include "gradscale/data.h"
#include "gradscale/log.h"
#include "gradscale/tokenizer.h"

/* ---- options ---- */

typedef enum train_precision { TRAIN_FP16, TRAIN_BF16, TRAIN_FP32 } train_precision;

/* Numbers that were not given are CLI_AUTO or NaN, texts NULL, until train_resolve. */
typedef struct train_options {
    int model; /* 0: auto, else models[model - 1] */
    const char *data, *labels, *init, *augment, *hidden;
    const char *resize, *tokenizer;
    int normalize; /* 1: no */
    uint64_t layers, width, heads, context, filters, patch;
    double dropout;
    const char *positions, *norm, *mlp, *head; /* of gpt; NULL: as GPT-2 has it */
    uint64_t kv_heads, mlp_width;
    double rope_theta;

    int precision, mode, wgrad; /* mode 0: auto, else gs_mode + 1; wgrad 1: f32 */
    const char *scaler, *on_overflow;
    int quantize; /* gs_quantize, but QAT before PTQ: train_quantize */
    const char *ranges;
    double loss_weight;
    bool recompute;

    const char *optimizer, *schedule;
    double lr, clip, epochs;
    uint64_t warmup, steps, batch, accumulate, seed;
    cli_list set;

    uint64_t valid_every, valid_items, patience;
    const char *log, *csv, *tensorboard, *checkpoint, *report, *name;
    uint64_t checkpoint_every, keep, telemetry_every;
    cli_machine machine;

    int compress; /* index in {f32, f16, bf16} */
    bool zero;
    double timeout;
    uint64_t compare_every;

    const char *config;
    bool resume, quiet, dry_run, print_config, overwrite, no_save;
} train_options;

/* The one the table points to: a process trains one job. */
extern train_options train_given;
extern const cli_option train_rows[];

/* Reads the command line over the config file over the checkpoint's config, if the run goes on.
 * checkpoint[room] becomes the path of the one to resume from, or "". CLI_GO or the exit code. */
int train_parse(int argc, char **argv, char *checkpoint, size_t room);
/* The same for another command, whose options have some of these rows among them. */
int train_parse_as(const cli_spec *with, int argc, char **argv, char *checkpoint, size_t room);
/* What can be said of the options before any data is seen. */
int train_check(const train_options *o);
/* Whether the files of a resolved job can be written. */
int train_check_paths(const train_options *o);
char *train_log_beside(const char *report); /* the log that --report makes; the caller's to free */
int train_check_new_folder(const char *path); /* an errno, as below */
int train_check_file(const char *path); /* what keeps it from being written: an errno; 0: nothing */

/* ---- a run that goes on ---- */

/* The newest checkpoint of --checkpoint; path "": there is none yet, but a job.conf. */
int train_resume_find(char *path, size_t room, gs_checkpoint_text *text);
/* Of gs_saver_newest's error that a newer one cannot be read: it may be intact, and its steps are
 * not to be void. The exit code. */
int train_resume_unread(const gs_error *error);
/* Whether it has been removed since, as a run does that writes newer ones; then it becomes the
 * newest of them. */
bool train_resume_again(char *checkpoint, size_t room);
enum { TRAIN_TRIES = 20 };
/* Its options become those given, and are remembered; checkpoint "": those of job.conf.
 * Outputs outside of the folder are left out, and told of unless `given` has names for them. */
int train_resume_read(const gs_checkpoint_text *text, const char *checkpoint, const char *folder,
                      const train_options *given);
/* The path of its job.conf; false: too long. */
bool train_config_path(char *path, size_t room, const char *folder);
/* Refuses those given since that the checkpoint's state does not go with. */
int train_resume_check(const char *checkpoint);
int train_resume_refuse(const char *given, const char *checkpoint, const char *has);
/* Refuses data whose classes have other names than those that the checkpoint was trained on. */
int train_resume_labels(const char *checkpoint, const gs_data_info *is);
/* "lr 0.01 (was 0.02)": those that change what is computed from here on, once resolved. */
void train_resume_changes(char *text, size_t size);

/* ---- text ---- */

/* The text of a tokenizer.json in *text, to be freed; NULL: bytes. From the checkpoint of a run
 * that goes on, or else --tokenizer, or what --init has. */
int train_tokenizer(char **text, const train_options *o, const char *checkpoint);
/* Writes tokenizer.json, vocab.json and merges.txt: for Hugging Face's AutoTokenizer, and for
 * programs of GPT-2's time. The folder has at most 4064 bytes. CLI_GO, or the exit code after an
 * error. */
int train_tokenizer_write(const char *folder, const gs_tokenizer *tokenizer);
/* The best checkpoint of a folder, or where there is none its newest. With GS_OK, a message in
 * error says that a newer one is damaged. */
gs_status train_best_path(char path[4096], const char *folder, gs_error *error);
/* The file of the weights: of a folder its model.safetensors, or a checkpoint as above. CLI_GO, or
 * the exit code after an error. */
int train_init_path(char path[4096], const char *init);
/* Refuses weights that have the model's shapes and were trained as another one. */
int train_init_check(const char *path, const train_options *o);

/* ---- models ---- */

typedef struct train_model {
    const char *name;
    gs_task task;
    const char *data;    /* the set it is shown with */
    const char *options; /* those of the sizes that it has, "|layers|width|" */
    train_options best;  /* what was found to do well, for what was not given; steps of a text */
    gs_status (*create)(gs_model **out, gs_context *ctx, const gs_data_info *data,
                        const train_options *o);
} train_model;

extern const train_model train_models[];
/* The model that was asked for, or the one for the task. */
const train_model *train_model_of(const train_options *o, const gs_data_info *data);
/* "cnn 28x28x1 filters=16 classes=10": two models with one line have the same weights. */
void train_model_line(char *text, size_t size, const train_model *m, const gs_data_info *data,
                      const train_options *o);
/* Whether a checkpoint is large enough to hold the model that its options speak of: asked before
 * there is memory for its weights. CLI_GO, or the exit code after an error. */
int train_model_fits(const gs_model *model, const char *checkpoint);
/* Whether a gpt is GPT-2, its head tied or not; a Llama. It may be neither: a mixture of them. */
bool train_is_gpt2(const train_options *o);
bool train_is_llama(const train_options *o);
/* Whether one of the words of the gpt's parts is none that there is: an error was printed. */
int train_check_parts(const train_options *o);
/* Of --augment, "crop:4,flip,cutout:8,color:0.2"; NULL: none. False: it is no such list. */
bool train_augment(gs_augment *out, const char *list);
/* Of --quantize. */
gs_quantize train_quantize(const train_options *o);
/* Of --ranges, "ema", "max" or "percentile:99.9"; NULL: ema. False: it is none of these, of which
 * train_check_ranges has told. */
bool train_ranges(gs_range_rule *rule, float *percentile, const char *text);
bool train_check_ranges(const char *text);
/* The sizes of --hidden and what is around them. -1: it is no list of sizes. */
int train_mlp_sizes(size_t *sizes, size_t room, const gs_data_info *data, const char *hidden);

/* ---- the job ---- */

enum { TRAIN_LINE = 256 };

typedef struct train_job {
    train_options o; /* resolved: nothing of it is auto */
    const train_model *kind;
    gs_context *ctx;
    gs_data *data;
    const gs_data_info *info;
    gs_model *model;
    gs_trainer *trainer;
    gs_loader *loader;
    gs_logger *log;     /* NULL: none */
    gs_error log_error; /* of the call that failed last */
    gs_saver *saver;    /* NULL: none */
    gs_comm comm;
    gs_optim_config optim;
    gs_dtype half;
    uint64_t epoch_steps; /* 0: endless */
    uint64_t items_each;  /* images or tokens of an item */
    char line[TRAIN_LINE];
    char changes[2 * TRAIN_LINE]; /* of a run that goes on: what train_resume_changes says */
    bool own_name;                /* o.name was made here, not given */
    bool new_folder;              /* o.checkpoint was, and is still to be made */
    char *config;                 /* as --print-config writes it */
    char *about_data;             /* gs_data_describe */
    gs_checkpoint about;          /* where it stands */
} train_job;

/* gs_data_open with the sources that `self` needs. CLI_GO or the exit code. */
int train_data_open(gs_data **out, gs_data_config *config);
/* Opens the data and fills in what was not given. checkpoint "": from the beginning. */
int train_job_open(train_job *j, const char *checkpoint);
/* Two parts of train_job_make that can be had alone, to see whether there can be such a job: what
 * the options say of scaler and optimizer, and the model, without its weights. */
int train_job_settings(train_job *j, gs_trainer_config *config);
int train_job_model(train_job *j);
/* Makes model, trainer and loader, and goes to the checkpoint; "": from the beginning. */
int train_job_make(train_job *j, char *checkpoint, size_t room);
/* CLI_GO if all ranks have the same job; else all of them say what differs, and where. */
int train_agree(const train_job *j, const char *checkpoint);
/* Writes j->config anew, after its options have changed. */
void train_job_config(train_job *j);
/* A run that names no folder gets one, unless --no-save is given: its name, and at the beginning
 * of writing the folder. CLI_GO or the exit code. */
int train_folder_name(train_job *j);
int train_folder_make(train_job *j);
/* Begins to write: logs and checkpoints. */
int train_job_write(train_job *j, const char *checkpoint);
void train_job_close(train_job *j);

typedef struct train_bytes {
    uint64_t weights, optimizer, gradients, activations;
} train_bytes;
train_bytes train_job_bytes(const train_job *j, gs_memory tape);
uint64_t train_job_parameters(const train_job *j);

/* Bytes of checkpoints: about those of one, how many there are at most, and their sum. */
typedef struct train_disk {
    uint64_t one, files, all;
} train_disk;
train_disk train_disk_of(const train_job *j);
uint64_t train_folder_bytes(const char *folder); /* of the files that are there */

/* ---- the loop ---- */

enum { TRAIN_DATA = GS_PHASE_COUNT, TRAIN_LOG, TRAIN_VALID, TRAIN_SAVE, TRAIN_PHASES };

typedef enum train_ending {
    TRAIN_DONE,
    TRAIN_STOPPED,
    TRAIN_EARLY,
    TRAIN_FAILED,
    TRAIN_STUCK,   /* went to its end, and less than a tenth of its steps was applied */
    TRAIN_DIVERGED /* went to its end, and the loss is not finite */
} train_ending;

/* The record as it was before a new best, whose file is not on the disk yet. */
typedef struct train_best {
    bool pending;
    double best;
    uint64_t best_step, waits;
} train_best;

typedef struct train_result {
    train_ending ending;
    uint64_t first;                 /* step before the first */
    uint64_t first_skip, first_bad; /* steps: skipped; with a loss that is not finite; 0: none */
    double loss, accuracy;          /* of the last validation; else the last step's, and NaN */
    double shown, pace;             /* loss and seconds per item, smoothed for the eye */
    uint64_t items;                 /* images or tokens, of this process's run */
    uint64_t sent;                  /* bytes to other ranks, in steps */
    double seconds, phases[TRAIN_PHASES];
    double scale;
    uint64_t saved; /* step of the last checkpoint that is on the disk; 0: none */
    uint64_t files; /* that are on the disk */
    train_best unsaved;
    double held;            /* seconds that the last checkpoint held training */
    double pause, next_try; /* s; when, of one that failed; pause 0: none has */
    int signal;             /* that ended it */
    unsigned lost_logs;     /* gs_logger_lost */
    bool log_failed, save_failed, stuck, reported;
} train_result;

/* CLI_GO, or the exit code after an error. Fills in *result in any case. */
int train_loop(train_job *j, train_result *result);
const char *train_ending_name(train_ending ending);
extern const char *const train_phase_names[TRAIN_PHASES];

static inline bool train_due(uint64_t step, uint64_t every)
{
    return every > 0 && step % every == 0;
}

/* What the loop tells the log; the other ranks hear meanwhile that this one is alive. */
void train_log_step(train_job *j, train_result *r, const gs_train_row *row,
                    const gs_log_step *step);
void train_log_valid(train_job *j, train_result *r, bool best);
void train_log_checkpoint(train_job *j, train_result *r, uint64_t step, const char *path);
void train_log_end(train_job *j, train_result *r);

/* Checkpoints: save.c begins with what it promises. settle comes before a validation, poll after
 * every step. CLI_GO, or the exit code after an error that ends the run. */
int train_save(train_job *j, train_result *r, bool best);
void train_save_best(train_job *j, train_result *r, double value);
int train_save_settle(train_job *j, train_result *r);
void train_save_poll(train_job *j, train_result *r);
int train_save_end(train_job *j, train_result *r);

/* Loss and accuracy (NaN: the task has none) over the validation split. */
int train_validate(train_job *j, double *loss, double *accuracy);
bool train_valid_possible(const train_job *j);

/* ---- what people see ---- */

const char *train_time_text(char text[48], double seconds);
void train_show_job(const train_job *j);    /* what is known before there are weights */
void train_show_folder(const train_job *j); /* where it is kept, and what that takes */
void train_show_heading(const train_job *j);
uint64_t train_skipped(const train_job *j); /* steps, those before a resume too */
void train_show_progress(const train_job *j, const train_result *r, const gs_log_step *step);
void train_show_valid(const train_job *j, double loss, double accuracy, bool best);
void train_show_summary(const train_job *j, const train_result *r);
int train_dry_run(train_job *j); /* dry.c */

#endif

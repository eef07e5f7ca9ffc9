/* checkpoint.h: all that a trainer knows, in a file that any safetensors tool opens.
 *
 *     gs_saver *saver;
 *     gs_saver_create(&saver, "run", 3, NULL, &error);            the newest 3 are kept
 *     char path[4096];
 *     gs_checkpoint about = {.model = "gpt layers=6", .config = text, .best = NAN};
 *     if (gs_saver_newest(path, sizeof path, "run", &error) == GS_OK)
 *         gs_checkpoint_load(path, trainer, &about, &error);      and gs_loader_seek
 *     for each batch
 *         gs_trainer_step(...); about.step++;
 *         now and then: gs_saver_save(saver, trainer, &about, 0, &error);
 *     gs_saver_wait(saver, &error);
 *     gs_saver_free(saver);
 *
 * What was saved and loaded goes on as if it had never stopped, bit for bit: weights, optimizer,
 * scaler, running statistics, dropout. A file is replaced atomically: it is written under another
 * name, synced to disk, then renamed. A checksum over all of its bytes detects damage. The layout
 * of the file: doc/checkpoint.md.
 */
#ifndef GRADSCALE_CHECKPOINT_H
#define GRADSCALE_CHECKPOINT_H

#include "gradscale/train.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What goes into the file besides the trainer's own state. */
typedef struct gs_checkpoint {
    uint64_t step;      /* steps taken */
    uint64_t items;     /* of data consumed: gs_loader_position */
    uint64_t epoch;     /* items of the data: those of an epoch; 0: endless, or not said */
    const char *config; /* any text of yours, `key = value` lines; NULL: empty */
    const char *model;  /* a line that must be equal to load: "gpt layers=6 ..."; NULL: empty */
    double best;        /* validation value so far; NaN: none */
    uint64_t best_step; /* when it was seen */
    uint64_t waits;     /* validations since */
    const char *data;   /* gs_data_describe: what the model was trained on; NULL: empty */
} gs_checkpoint;

/* Writes `path`, or leaves what was there. Nothing of the trainer changes.
 *
 * Of several ranks it is rank 0 that saves. Where the state is sharded (gs_ranks.zero) the others
 * call it too, with path NULL, to send their parts. */
GS_API gs_status gs_checkpoint_save(const char *path, gs_trainer *trainer,
                                    const gs_checkpoint *about, gs_error *error);

/* All or nothing: the file is read and verified as a whole before anything of the trainer changes,
 * which takes as much memory as the file is large, for that time. The trainer must be made for the
 * same model, precision and optimizer; a file of others is refused with an error message that
 * names the difference. Learning rates and other settings are the trainer's; scaler and seed become
 * the file's.
 *
 * Every rank loads the file, and none takes it over unless all can. Their number may be another one
 * than the file's, sharded or not.
 *
 * about->model is compared with the file's line if it is not NULL; about->config and data are not
 * looked at; the numbers become the file's. about may be NULL. */
GS_API gs_status gs_checkpoint_load(const char *path, gs_trainer *trainer, gs_checkpoint *about,
                                    gs_error *error);

enum { GS_CHECKPOINT_CONFIG = 16384, GS_CHECKPOINT_LINE = 512 }; /* the longest, with their 0 */

/* What a file says of itself, before there is a trainer. */
typedef struct gs_checkpoint_text {
    gs_checkpoint about; /* its texts are those below: copying this struct leaves them behind */
    char config[GS_CHECKPOINT_CONFIG];
    char model[GS_CHECKPOINT_LINE];
    char precision[GS_CHECKPOINT_LINE]; /* "O2 f16" */
    char optimizer[GS_CHECKPOINT_LINE]; /* "adamw moments=f32 rounding=nearest" */
} gs_checkpoint_text;

/* Reads the header alone: the checksum is for gs_checkpoint_load and _verify. */
GS_API gs_status gs_checkpoint_peek(gs_checkpoint_text *out, const char *path, gs_error *error);

/* Reads all of it: GS_OK if it is a checkpoint, and intact. */
GS_API gs_status gs_checkpoint_verify(const char *path, gs_error *error);

/* ---- a folder of them, written while training goes on ---- */

/* FOLDER/step-00001234.safetensors, the newest `keep` of them, and FOLDER/best.safetensors. */
typedef struct gs_saver gs_saver;

enum { GS_SAVE_BEST = 1 }; /* also as best.safetensors */

/* Makes the folder if it is not there, locks it until gs_saver_free, removes what a killed process
 * left half-written, and starts a thread. GS_ESTATE: another saver has the folder, and nothing was
 * touched. keep 0: all. alloc may be NULL; it is called by the caller's thread only. */
GS_API gs_status gs_saver_create(gs_saver **out, const char *folder, size_t keep,
                                 const gs_alloc *alloc, gs_error *error);

/* Copies the state, which takes as much memory as the file, and returns; the thread writes it. A
 * call that finds the one before still being written waits for it, and if that one failed returns
 * its error, once, and saves nothing. The files that were there stay until a new one is complete;
 * those of later steps, which a run that went back has left, stay too.
 *
 * Where the state is sharded, ranks other than 0 call it with saver NULL. */
GS_API gs_status gs_saver_save(gs_saver *saver, gs_trainer *trainer, const gs_checkpoint *about,
                               unsigned flags, gs_error *error);
/* Writes the last save once more, if it failed: the state as it was then, from the copy. GS_ESTATE:
 * nothing has failed, or there was no memory for a copy. */
GS_API gs_status gs_saver_retry(gs_saver *saver, gs_error *error);
/* Until all is on the disk. The error of the last save, once. */
GS_API gs_status gs_saver_wait(gs_saver *saver, gs_error *error);
GS_API void gs_saver_free(gs_saver *saver); /* waits too */

/* How long gs_saver_save held its caller the last time, in seconds: for the writing of the one
 * before, and to copy. */
typedef struct gs_saver_times {
    double waited, copied;
    double wrote; /* of the last file that is complete, by the thread */
    uint64_t bytes;
} gs_saver_times;
GS_API gs_saver_times gs_saver_get_times(gs_saver *saver);

/* Where the saver stands, without waiting. A file counts once it and its name are on the disk. */
typedef struct gs_saver_state {
    int busy;       /* one is being written */
    int failed;     /* the last one is not there: gs_saver_wait has the error */
    uint64_t files; /* that are complete, by this saver */
    uint64_t step;  /* of the newest of them */
    uint64_t best;  /* of the newest that was saved as the best too */
} gs_saver_state;
GS_API gs_saver_state gs_saver_get_state(gs_saver *saver);

/* The path of the newest intact checkpoint step-* of a folder. Where newer ones are damaged, the
 * call is GS_OK and *error says so; else error->status is GS_OK. GS_ENAME: there is none.
 * GS_ECHECKSUM: there are some, and none is intact. */
GS_API gs_status gs_saver_newest(char *path, size_t room, const char *folder, gs_error *error);

#ifdef __cplusplus
}
#endif

#endif

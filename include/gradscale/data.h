/* data.h: data sets, and a loader that has the next batch ready.
 *
 *     gs_data *data;
 *     gs_loader *loader;
 *     const gs_batch *micro;
 *     size_t n;
 *     gs_data_config what = {.size = sizeof what, .name = "fashion-mnist"};
 *     gs_loader_config how = {.size = sizeof how, .batch = 64, .seed = 1, .shuffle = 1};
 *     gs_data_open(&data, &what, NULL, &error);
 *     gs_loader_create(&loader, data, &how, NULL, &error);
 *     while (gs_loader_next(&micro, &n, loader, &error) == GS_OK)
 *         gs_trainer_step(trainer, micro, n, &row);
 *
 * A data set is two lists of items, to train on and to validate with; an item is a function of its
 * number. Files are checked against their real sizes, unpacked if they are packed, before memory is
 * asked for; one that lies is refused with an error message that names it.
 */
#ifndef GRADSCALE_DATA_H
#define GRADSCALE_DATA_H

#include "gradscale/train.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- data sets ---- */

/* What an item is, as the arrays of gs_data_read and of a gs_batch:
 *   CLASSES  x [height, width, channels], one target
 *   TOKENS   ids [time], targets [time]: the token that follows each
 *   PIXELS   x [height, width, channels], targets [height, width] */
typedef enum gs_task { GS_TASK_CLASSES, GS_TASK_TOKENS, GS_TASK_PIXELS } gs_task;

typedef enum gs_split { GS_SPLIT_TRAIN, GS_SPLIT_VALID, GS_SPLIT_COUNT } gs_split;

/* name is one of these, or the path of a file or folder, whose content decides:
 *
 *   fashion-mnist  of Debian's package dataset-fashion-mnist, or the four files in `root`
 *   self           the sources of this project as bytes: include/, src/ and cli/ of `root`, or
 *                  `root` itself where it is a file (PREFIX/share/gradscale/self.txt)
 *   shapes         discs, squares and triangles on noise, 32 x 32, one class per pixel: rendered,
 *                  endless
 *   IDX            images and labels, as MNIST's; a folder with such files, or one's images
 *   .npy, .npz     arrays x and y, or x_train and y_train with x_test and y_test: of images,
 *                  channels last, or of rows of features; a folder with such files
 *   .csv           rows of numbers with a column of classes: label, class, target, y, or the last
 *   CIFAR          a folder with the binary files of CIFAR-10 or CIFAR-100
 *   images         a folder of PNG and JPEG files, below a folder per class, or in images and masks
 *                  with a class per pixel; train and val above them, or not
 *   tokens         .bin files of llm.c, version 1, or of nanoGPT: 16 bits per token; a folder of
 *                  them
 *   text           any other file, and the text files of any other folder in the order of their
 *                  paths, a 0 after each, or with a tokenizer <|endoftext|>; hidden and binary ones
 *                  are passed over
 *
 * IDX and text may be packed by gzip. Images come with mean 0 and deviation 1 of each channel over
 * the training set; those of a folder over a fixed choice of 1000. Validation takes what the naming
 * says is for it (t10k, test, val); otherwise a share that is the same for every seed: of images a
 * random one, of tokens and text the end. */
typedef struct gs_data_config {
    size_t size; /* sizeof(gs_data_config) */
    const char *name;
    const char *labels; /* of IDX or npy; NULL: beside the images, "labels" for "images", y for x */
    const char *root;   /* see above */
    size_t time;        /* tokens of an item; 0: 256 */
    size_t vocabulary;  /* of token files; 0: the tokenizer's, or else GPT-2's 50257 */
    uint64_t seed;      /* of shapes */
    double valid;       /* the share held out; 0: 0.1 */
    /* What gs_data_describe said of the data that a model was trained on: these have its sizes,
     * normalisation, classes and tokens, or are refused. NULL: they speak for themselves. */
    const char *like;
    int unlabelled; /* images without their classes, with `like`: targets are -1, and all items are
                       of the split to train on, in the order of the files; of arrays with a part
                       to validate with, that one is last */
    int raw;        /* images as the file has them: neither mean nor deviation is taken */
    size_t height, width; /* of the images of a folder; 0: those of the first */
    /* What makes tokens of text, or made those of token files: the text of a tokenizer.json
     * (tokenizer.h). NULL: text is bytes. `like` has its own. */
    const char *tokenizer;
} gs_data_config;

typedef struct gs_data_info {
    const char *name; /* lives as long as the set */
    gs_task task;
    size_t height, width, channels; /* of images; else 0 */
    size_t classes;                 /* or the vocabulary */
    size_t time;                    /* tokens of an item; else 0 */
    uint64_t items[GS_SPLIT_COUNT]; /* UINT64_MAX: endless; a split may have none */
    /* [channels]: an image's value is (what the file holds - mean) * inverse_std. NULL: as it is */
    const double *mean, *inverse_std;
    const char *const *labels; /* [classes]: names of the classes. NULL: they are numbers */
    /* What a token is: "bytes", or the text of a tokenizer.json, for gs_tokenizer_read. NULL: not
     * known, or no tokens. */
    const char *tokenizer;
} gs_data_info;

typedef struct gs_data gs_data;

/* alloc and error may be NULL. */
GS_API gs_status gs_data_open(gs_data **out, const gs_data_config *config, const gs_alloc *alloc,
                              gs_error *error);
GS_API const gs_data_info *gs_data_get_info(const gs_data *data);

/* All of the info that a model needs to be used on other data, as JSON for a checkpoint: task,
 * sizes, normalisation, names of classes, tokenizer. text[room] with a 0 behind; *used is its
 * length, whatever room there is: GS_ESIZE if it does not fit. used may be NULL. */
GS_API gs_status gs_data_describe(char *text, size_t room, size_t *used, const gs_data *data,
                                  gs_error *error);

/* What such a text says; it lives until gs_data_info_free. items are 0. */
GS_API gs_status gs_data_info_read(gs_data_info **out, const char *text, const gs_alloc *alloc,
                                   gs_error *error);
GS_API void gs_data_info_free(gs_data_info *info);

/* What an item is called, the path of an image's file, or else its number; with a 0 behind. */
GS_API void gs_data_item_name(char *text, size_t room, const gs_data *data, gs_split split,
                              uint64_t item);

/* One item. Arrays that the task does not have are not looked at. Any number of threads at once. */
GS_API gs_status gs_data_read(float *x, int32_t *ids, int32_t *targets, const gs_data *data,
                              gs_split split, uint64_t item, gs_error *error);
GS_API void gs_data_close(gs_data *data);

/* ---- the loader ---- */

/* How images are varied in training: each a function of the loader's seed and of the position of
 * the item, epochs included, so that a run that goes on sees what it would have seen. Classes of
 * pixels move with their pixels; what comes in from outside of the image is 0 in x, the mean, and
 * counts for no class. All zero: not at all. */
typedef struct gs_augment {
    size_t crop;   /* moved by up to so many pixels, each way */
    int flip;      /* left and right are exchanged in half of the images */
    size_t cutout; /* a square of this side, anywhere, becomes 0 (DeVries and Taylor 2017) */
    float color;   /* contrast times 1 - color to 1 + color, and as much brightness, per channel */
} gs_augment;

/* A thread of the loader's reads ahead. What it reads is a pure function of seed and position: the
 * order of an epoch is a permutation computed from them, never stored, the same whatever the
 * threads and the ranks; an epoch shows every item once. */
typedef struct gs_loader_config {
    size_t size; /* sizeof(gs_loader_config) */
    gs_split split;
    size_t batch; /* items of a micro-batch of this rank */
    size_t micro; /* micro-batches of a step; 0: 1 */
    uint64_t seed;
    int shuffle;        /* 0: in the order of the set */
    int rank, ranks;    /* ranks 0: alone */
    gs_augment augment; /* of images */
} gs_loader_config;

typedef struct gs_loader gs_loader;

/* The data must outlive it. */
GS_API gs_status gs_loader_create(gs_loader **out, gs_data *data, const gs_loader_config *config,
                                  const gs_alloc *alloc, gs_error *error);
GS_API void gs_loader_free(gs_loader *loader);

/* This rank's part of the next step, valid until the next call. The ranks together get
 * batch * micro * size items, or what is left of the epoch, divided as evenly as can be: then
 * micro-batches are fewer and the last one shorter, and *n is 0 where the ranks are more than the
 * items. After an error the loader stands where it stood. */
GS_API gs_status gs_loader_next(const gs_batch **micro, size_t *n, gs_loader *loader,
                                gs_error *error);

/* Where it stands: items that all ranks together have been given since the beginning; position
 * divided by the items of the split is the epoch. Going there costs nothing. */
GS_API uint64_t gs_loader_position(const gs_loader *loader);
GS_API gs_status gs_loader_seek(gs_loader *loader, uint64_t items, gs_error *error);

/* Seconds that the last gs_loader_next waited for the thread. */
GS_API double gs_loader_waited(const gs_loader *loader);

#ifdef __cplusplus
}
#endif

#endif

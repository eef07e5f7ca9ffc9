/* What the kinds of data sets share. A kind is a row of functions; data.c has the list of them. */
#ifndef GSI_TRAIN_DATA_H
#define GSI_TRAIN_DATA_H

#include "base/base.h"
#include "gradscale/data.h"
#include "gradscale/tokenizer.h"

/* A file or folder that might be a data set. */
typedef struct gsi_place {
    const char *path;
    bool folder;
    uint8_t start[4]; /* of a file, unpacked; zeros beyond its end */
    int why;          /* errno: it could not be looked at, and may be of any kind */
} gsi_place;

typedef struct gsi_kind {
    const char *name;               /* as users give it; NULL: a path is given */
    bool (*fits)(gsi_place *place); /* for those without a name: the first that fits */
    size_t state;                   /* bytes, cleared */
    /* Fills state and info. After an error close is called nevertheless. */
    gs_status (*open)(gs_data *data, const gs_data_config *config, gs_error *error);
    /* split and item are within their bounds. */
    gs_status (*read)(const gs_data *data, gs_split split, uint64_t item, float *x, int32_t *ids,
                      int32_t *targets, gs_error *error);
    void (*close)(gs_data *data);
    bool unlabelled; /* it can be opened so */
    /* NULL: items have numbers */
    const char *(*item_name)(const gs_data *data, gs_split split, uint64_t item);
} gsi_kind;

extern const gsi_kind gsi_fashion_mnist, gsi_idx_set, gsi_array_set, gsi_csv_set, gsi_cifar_set,
    gsi_folder_set, gsi_image_set, gsi_self, gsi_text_set, gsi_token_set, gsi_shapes;

struct gs_data {
    gsi_heap heap;
    gsi_arena arena;            /* names of classes */
    gs_data_info *like;         /* what config.like says; NULL: nothing */
    gs_tokenizer *tokenizer;    /* of config or like; NULL: bytes, or not known */
    const char *tokenizer_text; /* of it, in the arena */
    const gsi_kind *kind;
    void *state;
    gs_data_info info;
    bool sorted; /* info.labels are, and each is there once */
    char name[100];
};

/* ---- what kinds use ---- */

/* config.time with its default; checked by gs_data_open. */
size_t gsi_data_time(const gs_data_config *config);

/* After open: that the set is what config.like says, whose classes, labels and normalisation become
 * the set's. Of one that is labelled classes are compared, too. */
gs_status gsi_data_alike(gs_data *data, bool labelled, gs_error *error);

/* Divides `all` items: the share of config.valid, at least one of two, is for validation. */
void gsi_data_split(gs_data *data, const gs_data_config *config, uint64_t all);

/* Names of classes, sorted and each once, become the set's labels; or those of config.like, where
 * one that is not among them is an error. If its classes are numbers and names are, too, there are
 * no labels: a name is its class's number. names[n] is sorted. */
gs_status gsi_data_labels(gs_data *data, const char **names, size_t n, gs_error *error);
/* A copy of the name of a class, which is UTF-8, in the set's arena. */
gs_status gsi_data_label(const char **out, gs_data *data, const char *name, size_t length,
                         gs_error *error);
/* The class of a name among the set's labels, or by its number; -1: it has none. */
int32_t gsi_data_class(const gs_data *data, const char *name);

/* Varies item `position` of a run: x [h, w, channels], and targets [h, w] where classes are of
 * pixels; else NULL. work: as many floats as x has, and as many integers as targets. */
void gsi_augment(float *x, int32_t *targets, const gs_data_info *info, const gs_augment *how,
                 uint64_t seed, uint64_t position, void *work);

/* Numbers below n, each once, for i = 0..n-1: a permutation that key and epoch choose. */
uint64_t gsi_permute(uint64_t i, uint64_t n, uint64_t key, uint64_t epoch);

#endif

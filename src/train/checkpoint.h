/* What checkpoints and the saver share: the image of a trainer in a file. */
#ifndef GSI_TRAIN_CHECKPOINT_H
#define GSI_TRAIN_CHECKPOINT_H

#include "gradscale/checkpoint.h"
#include "io/write.h"
#include "train/train.h"

enum { GSI_CHECKPOINT_VERSION = 1 };

/* The numbers of a checkpoint. Each is a text of the metadata. */
typedef struct gsi_facts {
    gs_checkpoint about;
    uint64_t seed, batches; /* of the trainer; with the rank they make the dropout */
    gs_optim_state optim;
} gsi_facts;

/* The texts that must be equal to load, besides the caller's model. */
void gsi_precision_text(char text[GS_CHECKPOINT_LINE], const gs_trainer *t);
void gsi_optimizer_text(char text[GS_CHECKPOINT_LINE], const gs_trainer *t);

/* Where a tensor of the image lies: in an array of the trainer, or, with a sharded state, in parts
 * on all ranks, which an unsharded block brings together. */
typedef struct gsi_origin {
    bool sharded;
    int family; /* of gsi_unsharded */
    size_t weight;
} gsi_origin;

typedef struct gsi_image {
    gsi_heap *heap;
    gsi_arena arena;     /* lists and names */
    gsi_tensor *list;    /* [n], in the order of the file; data NULL: sharded, and not gathered */
    gsi_origin *origins; /* [n]: of list[i], [list[i].tag] */
    size_t n;
    gsi_unsharded unsharded;
    char *block;    /* NULL: not sharded, or not gathered */
    uint64_t bytes; /* of all tensors */
    char *header;   /* NULL until gsi_image_describe */
    size_t length;
} gsi_image;

/* Lists what a checkpoint of the trainer holds. In any case to be freed. */
gs_status gsi_image_list(gsi_image *image, gsi_heap *heap, gs_trainer *t, gs_error *error);
/* Gathers what is sharded and resolves the data of those tensors. Every rank must call it; `keep`:
 * this one keeps the result. `mine` is an error that this rank has had: it takes part, and that is
 * the result. */
gs_status gsi_image_gather(gsi_image *image, gs_trainer *t, gs_status mine, bool keep,
                           gs_error *error);
/* Makes the header, with the numbers of now. */
gs_status gsi_image_describe(gsi_image *image, gs_trainer *t, const gs_checkpoint *about,
                             gs_error *error);
/* Allocates nothing: for any thread. */
gs_status gsi_image_write(const gsi_image *image, const char *path, gs_error *error);
void gsi_image_free(gsi_image *image);

gs_status gsi_read_facts(gsi_facts *facts, const gs_source *file, gs_error *error);

#endif

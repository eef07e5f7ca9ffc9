/* Images, or rows of features, that are held in memory: IDX files, arrays of NumPy, CSV, CIFAR. A
 * kind fills in x and y of its splits; the rest is the same for all. */
#ifndef GSI_TRAIN_DATA_IMAGES_H
#define GSI_TRAIN_DATA_IMAGES_H

#include "io/idx.h"
#include "train/data.h"

typedef struct gsi_images {
    gsi_idx x[GS_SPLIT_COUNT],
        y[GS_SPLIT_COUNT];  /* those of VALID have no data: one set, divided */
    size_t pixels;          /* of an image, channels included */
    size_t labels;          /* of an image */
    double *mean, *inverse; /* [channels]; 1 / deviation; in the arena */
} gsi_images;

/* x and y are there, those of VALID too or not: checks them, divides and measures them. */
gs_status gsi_images_set(gs_data *data, const gs_data_config *config, gs_error *error);
/* x is there without labels, that of VALID too or not: one set, in this order. */
gs_status gsi_images_alone(gs_data *data, gs_error *error);
gs_status gsi_images_read(const gs_data *data, gs_split split, uint64_t item, float *x,
                          int32_t *ids, int32_t *targets, gs_error *error);
void gsi_images_close(gs_data *data);

#endif

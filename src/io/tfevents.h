/* TensorBoard's event files: records (TFRecord) of protocol buffers (tensorflow.Event). */
#ifndef GSI_IO_TFEVENTS_H
#define GSI_IO_TFEVENTS_H

#include "io/append.h"

typedef struct gsi_scalar {
    const char *tag;
    double value; /* not finite: left out */
} gsi_scalar;

enum { GSI_SCALARS_MAX = 16, GSI_TAG_MAX = 48 };

/* A new file in the folder, which is made if it is not there. */
gs_status gsi_tfevents_open(gsi_append *file, const char *folder, gs_error *error);
/* A run that goes on: TensorBoard forgets what other files of the folder say of later steps. */
gs_status gsi_tfevents_resume(gsi_append *file, uint64_t step, gs_error *error);
gs_status gsi_tfevents_scalars(gsi_append *file, uint64_t step, const gsi_scalar *list, size_t n,
                               gs_error *error);

#endif

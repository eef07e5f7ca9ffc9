/* PNG and JPEG: a file, decoded to 8 bits per channel. */
#ifndef GSI_IO_IMAGE_H
#define GSI_IO_IMAGE_H

#include "io/file.h"

enum { GSI_IMAGE_SIDE = 1 << 14, GSI_IMAGE_PIXELS = 1 << 26 }; /* larger ones are refused */

typedef struct gsi_image8 {
    size_t height, width, channels; /* 1 or 3 */
    uint8_t *data;                  /* [height][width][channels], of the heap */
} gsi_image8;

/* Size and channels alone; data is NULL. */
gs_status gsi_image_look(gsi_image8 *out, const char *path, gsi_heap *heap, gs_error *error);
/* channels: 1 or 3, to which the file's are converted; 0: the file's own, alpha dropped. Any number
 * of threads at once, each with a heap of its own. A mask's numbers (`exact`) are not converted:
 * grey values or the indices of a palette, in one channel. */
gs_status gsi_image_read(gsi_image8 *out, const char *path, size_t channels, bool exact,
                         gsi_heap *heap, gs_error *error);

/* Whether a file with this name may be one, and whether it begins like one. */
bool gsi_image_name(const char *path);
bool gsi_image_begins(const uint8_t start[4]);

/* to [height, width, channels] in 0..255: `from` scaled to cover it, by means over areas or between
 * neighbours (bilinear), and cut around its centre. nearest: no new values are made. */
void gsi_image_fit(float *to, size_t height, size_t width, const gsi_image8 *from, bool nearest);

#endif

/* What the readers share. A reader fills source->entries and, if its data cannot be read straight
 * from the file, sets source->read. */
#ifndef GSI_IO_H
#define GSI_IO_H

#include "base/base.h"
#include "gradscale/io.h"
#include "io/file.h"

typedef struct gsi_entry {
    gs_entry pub;
    uint64_t item; /* bytes per element; 0 where the type has no whole number of them */
    bool swap;     /* big-endian in the file */
    bool fortran;  /* NumPy's: the first axis is the fastest */
    struct gsi_member *member;
} gsi_entry;

typedef struct gsi_text {
    const char *key, *value;
} gsi_text;

typedef gs_status gsi_read_fn(gs_source *s, const gsi_entry *e, uint64_t first, size_t count,
                              void *dst, gs_error *error);

struct gs_source {
    gsi_heap heap;
    gsi_arena arena; /* entries, names: everything that lives as long as the source */
    gsi_file file;
    const char *format;
    gsi_entry *entries;
    size_t count;
    gsi_text *texts; /* the metadata of safetensors */
    size_t n_texts;
    gsi_read_fn *read;
    struct gsi_unzip *unzip; /* of npz.c */
    void *map;               /* the whole file; NULL: not mapped */
};

gs_status gsi_open_npy(gs_source *s, gs_error *error);
gs_status gsi_open_npz(gs_source *s, gs_error *error);
void gsi_close_npz(gs_source *s);
gs_status gsi_open_safetensors(gs_source *s, gs_error *error);

/* "path: error message", returns the status. */
gs_status gsi_bad_file(const gs_source *s, gs_error *error, gs_status status, const char *format,
                       ...) GS_PRINTF(4, 5);
gs_status gsi_no_memory(const gs_source *s, gs_error *error);

/* Exactly n bytes from `offset`, or an error message. */
gs_status gsi_read_at(const gs_source *s, void *dst, size_t n, uint64_t offset, gs_error *error);

/* gs_source_read of any type that has whole bytes: as they lie in the file. The entry is there. */
gs_status gsi_source_raw(void *dst, gs_source *s, size_t i, uint64_t first, size_t count,
                         gs_error *error);

/* Room for n entries, cleared. */
bool gsi_new_entries(gs_source *s, size_t n);
const char *gsi_keep_string(gs_source *s, const char *text, size_t length); /* NULL: no memory */

/* GS_EFORMAT when two entries have one name. Needs 8 bytes per entry for a while. */
gs_status gsi_check_names(gs_source *s, gs_error *error);

bool gsi_utf8(const char *text, size_t length); /* valid, and without a NUL */

/* A name fit for an error message: control characters become '?', a long one is cut. */
enum { GSI_SHOWN = 64 };
const char *gsi_show(char out[GSI_SHOWN], const char *name, size_t length);

/* Sets count and bytes from shape; false when the product does not fit in 63 bits. */
bool gsi_set_count(gs_entry *e, uint64_t bits_an_element);

static inline uint64_t gsi_little(const uint8_t *p, int bytes)
{
    uint64_t x = 0;
    for (int i = bytes - 1; i >= 0; i--)
        x = x << 8 | p[i];
    return x;
}

/* Files are little-endian, but where `swap` says otherwise; machines need not be. */
static inline bool gsi_big_endian(void)
{
    const uint16_t one = 1;
    return *(const uint8_t *)&one == 0;
}
void gsi_swap_bytes(void *items, size_t count, size_t item);

/* ---- npy headers, also inside npz ---- */

enum {
    GSI_NPY_PREFIX = 12,
    GSI_NPY_HEADER = 65535
}; /* bytes: magic to length; longest dictionary */

/* bytes: the first n of an array of `total`. Fills the entry but for its name, and *header, the
 * number of bytes before the data. total must be header and data exactly. `what` names it. */
gs_status gsi_npy_header(const gs_source *s, gsi_entry *e, uint64_t *header, const char *what,
                         const uint8_t *bytes, size_t n, uint64_t total, char type[16],
                         gs_error *error);

#endif

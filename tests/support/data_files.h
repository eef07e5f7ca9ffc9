/* data_files.h: the files that the tests of data sets and the loader write. */
#ifndef DATA_FILES_H
#define DATA_FILES_H

#include "bytes.h"
#include "test.h"

#include "gradscale/data.h"
#include "io/tokens.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

static char folder[64];

/* The path of a name in the folder of this run; the same pointer for the same name. */
static inline const char *in_folder(const char *name)
{
    static char paths[256][160];
    char path[160];
    if (!folder[0]) {
        strcpy(folder, "/tmp/gs_test_data_XXXXXX");
        if (!mkdtemp(folder))
            abort();
    }
    snprintf(path, sizeof path, "%s/%s", folder, name);
    for (size_t i = 0; i < GSI_COUNT(paths); i++) {
        if (!paths[i][0])
            strcpy(paths[i], path);
        if (strcmp(paths[i], path) == 0)
            return paths[i];
    }
    abort();
}

static inline void write_file(const char *name, const void *data, size_t n)
{
    const int fd = open(in_folder(name), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (fd < 0 || write(fd, data, n) != (ssize_t)n)
        abort();
    close(fd);
}

static inline void write_text(const char *name, const char *text)
{
    write_file(name, text, strlen(text));
}

static inline void make_folder(const char *name)
{
    if (mkdir(in_folder(name), 0700) != 0)
        abort();
}

static inline void empty_folder(void)
{
    char command[256];
    if (!folder[0])
        return;
    snprintf(command, sizeof command, "chmod -R u+rwx '%s' && rm -rf '%s' && mkdir '%s'", folder,
             folder, folder);
    if (system(command) != 0)
        abort();
}

static inline bytes *gz(bytes *out, const bytes *in)
{
    z_stream z = {0};
    if (deflateInit2(&z, 6, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY) != Z_OK)
        abort();
    z.next_in = (uint8_t *)(uintptr_t)in->data;
    z.avail_in = (unsigned)in->n;
    z.next_out = out->data;
    z.avail_out = sizeof out->data;
    if (deflate(&z, Z_FINISH) != Z_STREAM_END)
        abort();
    out->n = sizeof out->data - z.avail_out;
    deflateEnd(&z);
    return out;
}

/* An IDX file of these dimensions, 0: no more; elements count up from `first`. */
static inline bytes *idx(bytes *b, uint8_t type, const uint32_t shape[5], uint64_t first)
{
    int rank = 0;
    uint64_t count = 1;
    while (rank < 4 && shape[rank])
        count *= shape[rank++];
    b->n = 0;
    add_big(b, (uint64_t)type << 8 | (uint64_t)rank, 4);
    for (int i = 0; i < rank; i++)
        add_big(b, shape[i], 4);
    for (uint64_t i = 0; i < count; i++) {
        const float f = (float)(first + i);
        const double d = (double)(first + i);
        uint32_t f_bits;
        uint64_t d_bits;
        memcpy(&f_bits, &f, 4);
        memcpy(&d_bits, &d, 8);
        switch (type) {
        case 0x0B:
            add_big(b, first + i, 2);
            break;
        case 0x0C:
            add_big(b, first + i, 4);
            break;
        case 0x0D:
            add_big(b, f_bits, 4);
            break;
        case 0x0E:
            add_big(b, d_bits, 8);
            break;
        default:
            add_big(b, first + i, 1);
        }
    }
    return b;
}

#define SHAPE(...) ((const uint32_t[5]){__VA_ARGS__})

static bytes file;

/* n images of 2 by 3, and the number of each as its label */
static inline void write_images(const char *images, const char *labels, uint32_t n)
{
    idx(&file, 0x0C, SHAPE(n, 2, 3), 0);
    write_file(images, file.data, file.n);
    idx(&file, 0x0C, SHAPE(n), 0);
    write_file(labels, file.data, file.n);
}

static inline void tokens(bytes *b, size_t n, uint64_t first)
{
    b->n = 0;
    add_little(b, GSI_TOKENS_MAGIC, 4);
    add_little(b, 1, 4);
    add_little(b, n, 4);
    while (b->n < 1024)
        add_little(b, 0, 4);
    for (size_t i = 0; i < n; i++)
        add_little(b, first + i, 2);
}

static inline void write_tokens(const char *name, size_t n, uint64_t first)
{
    tokens(&file, n, first);
    write_file(name, file.data, file.n);
}

/* ---- opening ---- */

static inline gs_data *opened(const gs_data_config *config)
{
    gs_error error = {0};
    gs_data *data;
    const gs_status status = gs_data_open(&data, config, NULL, &error);
    CHECK_MSG(status == GS_OK, "%s", error.text);
    return data;
}

static inline gs_data *opened_path(const char *name)
{
    return opened(&(gs_data_config){.size = sizeof(gs_data_config), .name = in_folder(name)});
}

#endif

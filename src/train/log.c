/* The writer of logs: its files. A log that goes on keeps its whole lines, and no file of others is
 * cut. */
#include "train/log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static gs_status failed(const char *path, gs_error *error)
{
    return gsi_fail(error, GS_EIO, "%.120s: %s", path, strerror(errno));
}

/* *file becomes NULL where nothing is there, and of pipes and terminals, which keep nothing. */
static gs_status open_old(FILE **file, const char *path, gs_error *error)
{
    struct stat about;
    *file = NULL;
    if (stat(path, &about) != 0)
        return errno == ENOENT ? GS_OK : failed(path, error);
    if (!S_ISREG(about.st_mode))
        return GS_OK;
    const int fd = gsi_open(path, O_RDONLY | O_CLOEXEC);
    *file = fd >= 0 ? fdopen(fd, "r") : NULL;
    if (*file)
        return GS_OK;
    const gs_status status = failed(path, error);
    if (fd >= 0)
        close(fd);
    return status;
}

/* The end of the reading: an error is not the end of the file. */
static gs_status close_old(FILE *file, const char *path, gs_status status, gs_error *error)
{
    if (ferror(file))
        status = gsi_fail(error, GS_EIO, "%.120s: cannot be read: %s", path, strerror(errno));
    fclose(file);
    return status;
}

/* Whether it begins as a log of ours does, as far as it goes; one that was rotated begins with any
 * line. */
static bool is_log(FILE *file)
{
    static const char *const starts[] = {"{\"event\":\"", "{\"step\":"};
    char has[16];
    const size_t n = fread(has, 1, sizeof has, file);
    bool ours = false;
    for (size_t i = 0; i < GSI_COUNT(starts); i++) {
        const size_t length = strlen(starts[i]);
        ours |= memcmp(has, starts[i], n < length ? n : length) == 0;
    }
    return ours && fseek(file, 0, SEEK_SET) == 0;
}

/* Bytes of the JSON log that are whole lines. */
static gs_status keep_json(uint64_t *keep, const char *path, gs_error *error)
{
    FILE *file;
    const gs_status status = open_old(&file, path, error);
    *keep = 0;
    if (!file)
        return status;
    uint64_t at = 0;
    errno = 0;
    const bool ours = is_log(file);
    for (int c; ours && (c = getc(file)) != EOF;) {
        at++;
        if (c == '\n')
            *keep = at;
    }
    return close_old(
        file, path,
        ours ? GS_OK : gsi_fail(error, GS_EFORMAT, "%.120s: this is no log to go on with", path),
        error);
}

/* Bytes of the CSV that are its header and whole rows of steps up to `step`. */
static gs_status keep_csv(gs_logger *l, uint64_t *keep, const char *path, uint64_t step,
                          gs_error *error)
{
    char row[1024];
    FILE *file;
    const gs_status status = open_old(&file, path, error);
    *keep = 0;
    if (!file)
        return status;
    gsi_log_header(l);
    bool ours = !l->line.lost, header = true;
    errno = 0;
    while (ours && fgets(row, sizeof row, file)) {
        const size_t length = strcspn(row, "\n");
        const bool whole = row[length] == '\n';
        if (header) /* as far as it goes */
            ours = length > 0 && (whole ? length == l->line.n : length < l->line.n) &&
                   memcmp(row, l->line.text, length) == 0;
        if (!whole || (!header && strtoull(row, NULL, 10) > step))
            break;
        header = false;
        *keep += length + 1;
    }
    l->line.n = 0;
    return close_old(
        file, path,
        ours ? GS_OK
             : gsi_fail(error, GS_EFORMAT, "%.120s: this is no CSV log to go on with", path),
        error);
}

/* (1) All that is there has been looked at, and all files are open and locked, before one of them
 *     changes. */
static gs_status open_files(gs_logger *l, const gs_logger_config *config, gs_error *error)
{
    uint64_t json = 0, csv = 0;
    gs_status status = GS_OK;
    if (config->resume && config->json)
        status = keep_json(&json, config->json, error);
    if (status == GS_OK && config->resume && config->csv)
        status = keep_csv(l, &csv, config->csv, config->step, error);
    if (status == GS_OK && config->json)
        status = gsi_append_open(&l->json, config->json, error);
    if (status == GS_OK && config->csv)
        status = gsi_append_open(&l->csv, config->csv, error);
    if (status == GS_OK && config->tensorboard)
        status = gsi_tfevents_open(&l->board, config->tensorboard, error);
    if (status == GS_OK)
        status = gsi_append_cut(&l->json, json, error);
    if (status == GS_OK)
        status = gsi_append_cut(&l->csv, csv, error);
    l->fresh = json == 0;
    if (status == GS_OK && config->csv && csv == 0) {
        gsi_log_header(l);
        status = gsi_log_write(l, &l->csv);
    }
    if (status == GS_OK && config->resume && json > 0)
        status = gsi_log_line(l, GS_LOG_RESUME, &(gs_log_resume){config->step, config->from});
    if (status == GS_OK && config->resume && l->board.fd >= 0)
        status = gsi_tfevents_resume(&l->board, config->step, error);
    if (l->error.status != GS_OK && error)
        *error = l->error;
    return status;
}

gs_status gs_logger_open(gs_logger **out, const gs_logger_config *config, const gs_alloc *alloc,
                         gs_error *error)
{
    if (!out || !config)
        return gsi_fail(error, GS_ENULL, "the settings of a log are NULL");
    *out = NULL;
    gs_logger_config today;
    gs_status status = gsi_config(&today, sizeof today, config, "gs_logger_config", error);
    if (status != GS_OK)
        return status;
    gsi_heap heap;
    gsi_heap_init(&heap, alloc);
    gs_logger *l = gsi_new(&heap, sizeof *l);
    if (!l)
        return gsi_fail(error, GS_ENOMEM, "no memory for a log");
    *l = (gs_logger){.heap = heap, .json.fd = -1, .csv.fd = -1, .board.fd = -1};
    l->line.heap = &l->heap;
    status = open_files(l, &today, error);
    if (status != GS_OK) {
        gs_logger_close(l);
        return status;
    }
    *out = l;
    return GS_OK;
}

void gs_logger_close(gs_logger *l)
{
    if (!l)
        return;
    gsi_append_close(&l->json);
    gsi_append_close(&l->csv);
    gsi_append_close(&l->board);
    gsi_heap heap = l->heap;
    gsi_free(&heap, l->line.text);
    gsi_free(&heap, l);
}

int gs_logger_fresh(const gs_logger *l) { return l->fresh; }

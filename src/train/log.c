/* The writer of logs: its files. A log that goes on keeps its whole lines, and no file of others is
 * cut. */
#include "train/log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static gs_status failed(const char *path, gs_error *error)
{
    return gsi_fail(error, GS_EIO, "%.120s: %s", path, strerror(errno));
}

/* A log that is there already, byte by byte. */
typedef struct old_log {
    int fd; /* -1: nothing is there; or a pipe or terminal, which keeps nothing */
    int error;
    size_t at, n;
    char bytes[1 << 15];
} old_log;

static gs_status open_old(old_log *old, const char *path, gs_error *error)
{
    struct stat about;
    old->fd = -1;
    old->error = 0;
    old->at = old->n = 0;
    if (stat(path, &about) != 0)
        return errno == ENOENT ? GS_OK : failed(path, error);
    if (!S_ISREG(about.st_mode))
        return GS_OK;
    old->fd = gsi_open(path, O_RDONLY | O_CLOEXEC);
    return old->fd >= 0 ? GS_OK : failed(path, error);
}

/* -1: the end, or an error, which is not the end: close_old tells. */
static int next_byte(old_log *old)
{
    if (old->at == old->n) {
        const ssize_t got = gsi_read(old->fd, old->bytes, sizeof old->bytes);
        if (got < 0)
            old->error = errno;
        old->at = 0;
        old->n = got > 0 ? (size_t)got : 0;
    }
    return old->at < old->n ? (unsigned char)old->bytes[old->at++] : -1;
}

static gs_status close_old(old_log *old, const char *path, bool ours, const char *what,
                           gs_error *error)
{
    close(old->fd);
    if (old->error)
        return gsi_fail(error, GS_EIO, "%.120s: cannot be read: %s", path, strerror(old->error));
    return ours ? GS_OK
                : gsi_fail(error, GS_EFORMAT, "%.120s: this is no %s to go on with", path, what);
}

/* A line, without its end. */
typedef struct old_line {
    uint64_t length;
    bool whole;      /* it has its end */
    bool torn;       /* after its text there are zeros alone, as a power loss may leave them */
    char text[1024]; /* cut to fit, and before the first zero */
} old_line;

/* False: there is none. */
static bool next_line(old_log *old, old_line *line)
{
    size_t n = 0;
    int c;
    line->length = 0;
    line->torn = true;
    for (bool zeros = false; (c = next_byte(old)) >= 0 && c != '\n'; line->length++) {
        zeros |= c == 0;
        line->torn &= !zeros || c == 0;
        if (!zeros && n < sizeof line->text - 1)
            line->text[n++] = (char)c;
    }
    line->text[n] = 0;
    line->whole = c == '\n';
    return line->whole || line->length > 0;
}

/* Whether its text is, as far as it came to the disk, ours[n]. */
static bool is_part(const old_line *line, const char *ours, size_t n)
{
    const size_t length = strlen(line->text);
    return !line->whole && line->torn && length <= n && memcmp(line->text, ours, length) == 0;
}

static bool begins(const old_line *line, const char *ours)
{
    const size_t n = strlen(ours);
    return strncmp(line->text, ours, n) == 0 || is_part(line, ours, n);
}

/* Bytes of the JSON log up to the end of its last whole line: one that is damaged costs no other.
 * One that was rotated begins with any line. */
static gs_status keep_json(uint64_t *keep, const char *path, old_log *old, gs_error *error)
{
    old_line line;
    const gs_status status = open_old(old, path, error);
    *keep = 0;
    if (old->fd < 0)
        return status;
    bool ours = true;
    for (bool first = true; ours && next_line(old, &line); first = false) {
        if (first)
            ours = begins(&line, "{\"event\":\"") || begins(&line, "{\"step\":");
        *keep += line.whole ? line.length + 1 : 0;
    }
    return close_old(old, path, ours, "log", error);
}

/* Bytes of the CSV that are its header and whole rows of steps up to `step`. A row with a later one
 * that rows with earlier ones follow is a damaged row, and stays. */
static gs_status keep_csv(gs_logger *l, uint64_t *keep, const char *path, uint64_t step,
                          old_log *old, gs_error *error)
{
    old_line row;
    const gs_status status = open_old(old, path, error);
    *keep = 0;
    if (old->fd < 0)
        return status;
    gsi_log_header(l);
    const size_t n = l->line.n;
    uint64_t end = 0, last = 0;
    bool ours = true;
    if (l->line.lost) {
        close(old->fd);
        return gsi_fail(error, GS_ENOMEM, "no memory to read a log");
    }
    for (bool header = true; ours && next_line(old, &row); header = false) {
        const uint64_t at = header ? 0 : strtoull(row.text, NULL, 10);
        if (header)
            ours = is_part(&row, l->line.text, n) ||
                   (row.whole && row.length == n && memcmp(row.text, l->line.text, n) == 0);
        const bool follows = *keep == end || at > last; /* rows of later steps, which go with it */
        end += row.whole ? row.length + 1 : 0;
        if (row.whole && at <= step && follows) {
            *keep = end;
            last = at;
        }
    }
    l->line.n = 0;
    return close_old(old, path, ours, "CSV log", error);
}

/* (1) All that is there has been looked at, and all files are open and locked, before one of them
 *     changes. */
static gs_status open_files(gs_logger *l, const gs_logger_config *config, gs_error *error)
{
    uint64_t json = 0, csv = 0;
    gs_status status = GS_OK;
    old_log *old = config->resume ? gsi_new(&l->heap, sizeof *old) : NULL;
    if (config->resume && !old)
        return gsi_fail(error, GS_ENOMEM, "no memory to read a log");
    if (config->resume && config->json)
        status = keep_json(&json, config->json, old, error);
    if (status == GS_OK && config->resume && config->csv)
        status = keep_csv(l, &csv, config->csv, config->step, old, error);
    gsi_free(&l->heap, old);
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

/* An error closes a file and leaves its name. */
unsigned gs_logger_lost(const gs_logger *l)
{
    const gsi_append *const files[] = {&l->json, &l->csv, &l->board};
    unsigned lost = 0;
    for (size_t i = 0; i < GSI_COUNT(files); i++)
        lost |= (unsigned)(files[i]->path[0] && files[i]->fd < 0) << i;
    return lost;
}

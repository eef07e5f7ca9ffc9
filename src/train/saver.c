/* A folder of checkpoints, and a thread that writes them.
 *
 * (1) The job (image, copy, path, flags) is the caller's while `busy` is false and the thread's
 *     while it is true. Only the caller allocates.
 * (2) A file is removed only after a newer one is complete, and never the one just written.
 * (3) An error of the thread stays in `failed` until a call has returned it. The job stays too: it
 *     can be written again (`again`) until the next one takes its place.
 * (4) A saver holds a lock on its folder from the first change of it to the last. The lock is on
 *     the folder itself (flock): it needs no file, and the system frees it however a process ends.
 * (5) `state` counts a file when it is renamed and its folder is on the disk, not before.
 *
 *   save:    wait until not busy -> return the last error, or: list, copy, set busy -> return
 *   thread:  wait until busy -> write, link best, remove the oldest -> clear busy
 */
#include "train/checkpoint.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

/* Bytes of the longest name of a file, and of the path of a folder that has room for it. */
enum { NAME = sizeof "step-18446744073709551615.safetensors", FOLDER = GSI_PATH - NAME };

struct gs_saver {
    gsi_heap heap;
    size_t keep;
    char folder[FOLDER];
    int held; /* the folder, locked */
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed; /* busy or quit */
    bool busy, quit;

    gsi_image image;
    char *copy; /* [room]: of the trainer's arrays */
    size_t room;
    uint64_t step;
    unsigned flags;

    gs_error failed; /* status GS_OK: nothing */
    bool again;      /* the job failed, and its copy is there */
    bool copied;     /* the job does not point to the trainer's arrays */
    gs_saver_state state;
    gs_saver_times times;
};

/* ---- names ---- */

#define STEP_FILE "step-%08" PRIu64 ".safetensors"

/* False: too long. */
static bool join(char path[GSI_PATH], const char *folder, const char *name)
{
    const int n = snprintf(path, GSI_PATH, "%s/%s", folder, name);
    return n >= 0 && n < GSI_PATH;
}

static bool step_path(char path[GSI_PATH], const char *folder, uint64_t step)
{
    char name[NAME];
    snprintf(name, sizeof name, STEP_FILE, step);
    return join(path, folder, name);
}

/* Exactly what step_path writes. */
static bool is_step(const char *name, uint64_t *step)
{
    char again[64];
    if (strncmp(name, "step-", 5) != 0 || name[5] < '0' || name[5] > '9')
        return false;
    *step = strtoull(name + 5, NULL, 10);
    snprintf(again, sizeof again, STEP_FILE, *step);
    return strcmp(name, again) == 0;
}

typedef struct folder_list {
    size_t count;
    uint64_t oldest, newest;
} folder_list;

/* The files of steps up to `last`. False: the folder cannot be read. */
static bool list_steps(folder_list *list, const char *folder, uint64_t last)
{
    DIR *dir = gsi_opendir(folder);
    uint64_t step;
    *list = (folder_list){0, UINT64_MAX, 0};
    if (!dir)
        return false;
    errno = 0;
    for (struct dirent *e; (e = readdir(dir)); errno = 0)
        if (is_step(e->d_name, &step) && step <= last) {
            list->count++;
            list->oldest = step < list->oldest ? step : list->oldest;
            list->newest = step > list->newest ? step : list->newest;
        }
    const int why = errno;
    closedir(dir);
    errno = why;
    return why == 0;
}

/* ---- the thread ---- */

/* One at a time is the usual case. */
static void remove_oldest(const gs_saver *s)
{
    folder_list list;
    char path[GSI_PATH];
    while (s->keep > 0 && list_steps(&list, s->folder, s->step) && list.count > s->keep) {
        step_path(path, s->folder, list.oldest);
        if (unlink(path) != 0)
            return;
    }
}

static gs_status write_files(const gs_saver *s, gs_error *error)
{
    char path[GSI_PATH], best[GSI_PATH];
    step_path(path, s->folder, s->step); /* gs_saver_create saw to the room */
    join(best, s->folder, "best.safetensors");
    gs_status status = gsi_image_write(&s->image, path, error);
    if (status == GS_OK && s->flags & GS_SAVE_BEST && !gsi_replace_by_link(best, path))
        status = gsi_image_write(&s->image, best, error);
    if (status == GS_OK)
        remove_oldest(s);
    return status;
}

static void *thread_main(void *arg)
{
    gs_saver *s = arg;
    pthread_mutex_lock(&s->lock);
    for (;;) {
        while (!s->busy && !s->quit)
            pthread_cond_wait(&s->changed, &s->lock);
        if (!s->busy)
            break;
        pthread_mutex_unlock(&s->lock);
        gs_error error = {0};
        const double start = gs_clock();
        const gs_status status = write_files(s, &error);
        const double took = gs_clock() - start;
        pthread_mutex_lock(&s->lock);
        if (status == GS_OK) {
            s->times.wrote = took;
            s->times.bytes = s->image.length + s->image.bytes + GSI_CHECKSUM_BYTES;
            s->state.files++;
            s->state.step = s->step;
            if (s->flags & GS_SAVE_BEST)
                s->state.best = s->step;
        } else {
            s->failed = error;
        }
        s->again = status != GS_OK && s->copied;
        s->busy = false;
        pthread_cond_broadcast(&s->changed);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

/* Signals are for the caller's threads; a file that grows too large is an error here, not SIGXFSZ.
 */
static bool start_thread(gs_saver *s)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const bool started = pthread_create(&s->thread, NULL, thread_main, s) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return started;
}

/* ---- life ---- */

/* Some network file systems have no such locks, or none of folders: nothing is guarded there. */
static gs_status hold_folder(int *held, const char *folder, gs_error *error)
{
    char shown[GSI_SHOWN_PATH];
    gsi_show_path(shown, folder);
    *held = gsi_open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (*held < 0)
        return gsi_fail(error, GS_EIO, "%s: cannot be opened: %s", shown, strerror(errno));
    if (gsi_flock(*held, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK)
        return GS_OK;
    close(*held);
    return gsi_fail(error, GS_ESTATE, "%s: another run is writing its checkpoints there", shown);
}

/* The rest, when there is no thread. */
static void let_go(gs_saver *s)
{
    gsi_heap heap = s->heap;
    pthread_mutex_destroy(&s->lock);
    pthread_cond_destroy(&s->changed);
    close(s->held);
    gsi_free(&heap, s);
}

gs_status gs_saver_create(gs_saver **out, const char *folder, size_t keep, const gs_alloc *alloc,
                          gs_error *error)
{
    char path[GSI_PATH];
    gsi_heap heap;
    if (!out || !folder)
        return gsi_fail(error, GS_ENULL, "there is no folder to save to");
    *out = NULL;
    gs_status status = gsi_make_folder(folder, error);
    if (status != GS_OK)
        return status;
    if (!step_path(path, folder, UINT64_MAX))
        return gsi_fail(error, GS_ESIZE, "the path of the folder is too long");
    gsi_heap_init(&heap, alloc);
    gs_saver *s = gsi_new(&heap, sizeof *s);
    if (!s)
        return gsi_fail(error, GS_ENOMEM, "no memory for a saver");
    *s = (gs_saver){.heap = heap, .keep = keep};
    strcpy(s->folder, folder);
    status = hold_folder(&s->held, folder, error);
    if (status != GS_OK) {
        gsi_free(&heap, s);
        return status;
    }
    gsi_remove_temporaries(folder, NULL);
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->changed, NULL);
    if (!start_thread(s)) {
        let_go(s);
        return gsi_fail(error, GS_ETHREAD, "the thread that saves could not be started");
    }
    *out = s;
    return GS_OK;
}

void gs_saver_free(gs_saver *s)
{
    if (!s)
        return;
    pthread_mutex_lock(&s->lock);
    s->quit = true;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
    pthread_join(s->thread, NULL);
    gsi_image_free(&s->image);
    gsi_free(&s->heap, s->copy);
    let_go(s);
}

/* ---- saving ---- */

gs_status gs_saver_wait(gs_saver *s, gs_error *error)
{
    if (!s)
        return gsi_fail(error, GS_ENULL, "there is no saver to wait for");
    pthread_mutex_lock(&s->lock);
    while (s->busy)
        pthread_cond_wait(&s->changed, &s->lock);
    const gs_error failed = s->failed;
    s->failed = (gs_error){0};
    pthread_mutex_unlock(&s->lock);
    return failed.status == GS_OK ? GS_OK : gsi_fail(error, failed.status, "%s", failed.text);
}

gs_saver_state gs_saver_get_state(gs_saver *s)
{
    pthread_mutex_lock(&s->lock);
    gs_saver_state state = s->state;
    state.busy = s->busy;
    state.failed = s->failed.status != GS_OK;
    pthread_mutex_unlock(&s->lock);
    return state;
}

gs_status gs_saver_retry(gs_saver *s, gs_error *error)
{
    if (!s)
        return gsi_fail(error, GS_ENULL, "there is no saver to try again");
    pthread_mutex_lock(&s->lock);
    const bool again = s->again; /* then it is not busy */
    if (again) {
        s->failed = (gs_error){0};
        s->again = false;
        s->busy = true;
        pthread_cond_broadcast(&s->changed);
    }
    pthread_mutex_unlock(&s->lock);
    return again ? GS_OK : gsi_fail(error, GS_ESTATE, "there is no save that could be repeated");
}

gs_saver_times gs_saver_get_times(gs_saver *s)
{
    pthread_mutex_lock(&s->lock);
    const gs_saver_times times = s->times;
    pthread_mutex_unlock(&s->lock);
    return times;
}

typedef struct copying {
    const gsi_image *image;
    char *to;
} copying;

enum { PIECE = 1 << 22 };

/* Bytes [i * PIECE, (i + 1) * PIECE) of all tensors in a row. */
static void copy_piece(void *arg, size_t i)
{
    const copying *c = arg;
    const gsi_image *image = c->image;
    uint64_t at = (uint64_t)i * PIECE;
    const uint64_t end = image->bytes - at < PIECE ? image->bytes : at + PIECE;
    size_t low = 0, high = image->n;
    while (high - low > 1) { /* the tensor that `at` is in */
        const size_t middle = low + (high - low) / 2;
        *(image->list[middle].at <= at ? &low : &high) = middle;
    }
    for (size_t k = low; at < end; k++) {
        const gsi_tensor *x = &image->list[k];
        const uint64_t after = x->at + x->count * gs_dtype_format(x->dtype)->bytes;
        const uint64_t stop = after < end ? after : end;
        memcpy(c->to + at, (const char *)x->data + (at - x->at), (size_t)(stop - at));
        at = stop;
    }
}

/* False: there is no memory. */
static bool copy_state(gs_saver *s, const gs_trainer *t)
{
    gsi_image *image = &s->image;
    if (s->room < image->bytes) {
        gsi_free(&s->heap, s->copy);
        s->copy = image->bytes <= SIZE_MAX ? gsi_new(&s->heap, (size_t)image->bytes) : NULL;
        s->room = s->copy ? (size_t)image->bytes : 0;
    }
    if (!s->copy)
        return false;
    copying c = {image, s->copy};
    const gs_parallel *threads = &t->ctx->parallel;
    threads->run(threads->user, (size_t)((image->bytes + PIECE - 1) / PIECE), copy_piece, &c);
    for (size_t i = 0; i < image->n; i++)
        image->list[i].data = s->copy + image->list[i].at;
    gsi_free(image->heap, image->block);
    image->block = NULL;
    return true;
}

/* What a rank that does not write has to do: send its parts of a sharded state. */
static gs_status send_parts(gs_trainer *t, gs_status mine, gs_error *error)
{
    gsi_image none = {.heap = &t->ctx->heap};
    return gsi_image_gather(&none, t, mine, false, error);
}

gs_status gs_saver_save(gs_saver *s, gs_trainer *trainer, const gs_checkpoint *about,
                        unsigned flags, gs_error *error)
{
    const double start = gs_clock();
    if (!trainer || !about)
        return gsi_fail(error, GS_ENULL, "there is no trainer to save, or nothing is said of it");
    if (!s && trainer->comm.rank > 0)
        return send_parts(trainer, GS_OK, error);
    gs_status status = gs_saver_wait(s, error);
    if (status != GS_OK)
        return send_parts(trainer, status, error);
    const double waited = gs_clock();
    s->again = false; /* the thread is idle: its job is the caller's */
    gsi_image_free(&s->image);
    status = gsi_image_list(&s->image, &s->heap, trainer, error);
    status = gsi_image_gather(&s->image, trainer, status, true, error);
    if (status == GS_OK)
        status = gsi_image_describe(&s->image, trainer, about, error);
    if (status != GS_OK)
        return status;
    /* without the memory to copy, the caller is held until all is written */
    const bool copied = copy_state(s, trainer);
    s->step = about->step;
    s->flags = flags;
    s->copied = copied;
    pthread_mutex_lock(&s->lock);
    s->times.waited = waited - start;
    s->times.copied = gs_clock() - waited;
    s->busy = true;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
    return copied ? GS_OK : gs_saver_wait(s, error);
}

/* ---- finding ---- */

static gs_status none_intact(const char *shown, size_t n, const gs_error *first, gs_error *error)
{
    return gsi_fail(error, GS_ECHECKSUM, "%s: none of its %zu checkpoints is intact: %.100s", shown,
                    n, first->text);
}

gs_status gs_saver_newest(char *path, size_t room, const char *folder, gs_error *error)
{
    enum { GONE_MOST = 20 };
    char found[GSI_PATH], shown[GSI_SHOWN_PATH];
    gs_error damage = {0}, first = {0};
    size_t passed = 0, gone = 0;
    if (!folder || !path)
        return gsi_fail(error, GS_ENULL, "there is no folder to look in, or no room for a path");
    gsi_show_path(shown, folder);
    for (uint64_t last = UINT64_MAX;;) {
        folder_list list;
        if (!list_steps(&list, folder, last))
            return gsi_fail(error, GS_EIO, "%s: cannot be opened: %s", shown, strerror(errno));
        if (list.count == 0 && passed > 0)
            return none_intact(shown, passed, &first, error);
        if (list.count == 0)
            return gone ? gsi_fail(error, GS_ESTATE, "%s: its checkpoints are being removed", shown)
                        : gsi_fail(error, GS_ENAME, "%s: holds no checkpoint", shown);
        if (!step_path(found, folder, list.newest) || strlen(found) >= room)
            return gsi_fail(error, GS_ESIZE, "%s: the path is too long", shown);
        const gs_status status = gs_checkpoint_verify(found, &damage);
        if (status == GS_OK)
            break;
        if (status == GS_ENOMEM) /* uncovered: malloc's own memory ends */
            return gsi_fail(error, status, "%s", damage.text);
        if (access(found, F_OK) != 0 && errno == ENOENT && gone++ < GONE_MOST) {
            last = UINT64_MAX; /* a run that removes one has written a newer one */
            passed = 0;
            continue;
        }
        if (passed++ == 0)
            first = damage;
        if (list.newest == 0)
            return none_intact(shown, passed, &first, error);
        last = list.newest - 1;
    }
    strcpy(path, found);
    if (error)
        *error = (gs_error){0};
    if (passed > 0)
        gsi_fail(error, first.status, "%.180s; an older one is taken", first.text);
    return GS_OK;
}

/* A thread that reads ahead, a ring of steps between it and its caller.
 *
 * (1) What a step holds is a function of configuration and position alone: where the thread is, how
 *     often it was sent back, and what other ranks do changes no bit.
 * (2) The ring has `filled` steps that nobody has taken yet, from `first` on; the step before
 *     `first` is the caller's until the next call. The thread writes only to the slot after the
 *     last filled one, and never to the caller's: filled + 1 < SLOTS then.
 * (3) A seek empties the ring and changes `route`; what the thread was reading meanwhile belongs to
 *     the old route and is dropped.
 * (4) An error is a step like others: it is handed out in its turn. The thread rests until it is
 *     sent somewhere.
 *
 *     thread:  wait for room -> read a step at `ahead` -> the same route? filled++, ahead moves
 *     caller:  wait for a filled step -> take it: first++, filled--, position moves
 */
#include "train/data.h"

#include <pthread.h>
#include <signal.h>
#include <string.h>

enum { SLOTS = 4 }; /* the caller's, one or two ready, one being read */

typedef struct slot {
    float *x;
    int32_t *ids, *targets;
    gs_batch *micro; /* [config.micro] */
    size_t n;        /* micro-batches */
    uint64_t items;  /* of all ranks */
    gs_status status;
    gs_error error;
} slot;

struct gs_loader {
    gsi_heap heap;
    gsi_arena arena; /* the arrays of the slots */
    gs_data *data;
    gs_loader_config config;
    uint64_t epoch;                      /* items of one */
    size_t x_size, id_size, target_size; /* elements of an item */
    void *work;                          /* the thread's, to vary images; NULL: they are not */

    pthread_t thread;
    bool started;
    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t changed;
    slot slots[SLOTS];
    size_t first, filled;
    bool resting, quit;
    uint64_t route, ahead;

    uint64_t position; /* the caller's own */
    double waited;
};

/* ---- reading a step ---- */

static uint64_t item_at(const gs_loader *l, uint64_t position)
{
    if (l->epoch == UINT64_MAX)
        return position;
    const uint64_t i = position % l->epoch;
    return l->config.shuffle ? gsi_permute(i, l->epoch, l->config.seed, position / l->epoch) : i;
}

/* Items of the step at `position`, all ranks: never of two epochs. */
static uint64_t step_items(const gs_loader *l, uint64_t position)
{
    const gs_loader_config *c = &l->config;
    const uint64_t most = (uint64_t)c->batch * c->micro * (uint64_t)c->ranks;
    const uint64_t left = l->epoch - position % l->epoch;
    return most < left ? most : left;
}

/* The rank's span of the step, in micro-batches of config.batch. */
static void read_step(const gs_loader *l, slot *s, uint64_t position)
{
    const gs_loader_config *c = &l->config;
    const uint64_t rank = (uint64_t)c->rank, ranks = (uint64_t)c->ranks;
    s->items = step_items(l, position);
    /* each has a share, and the first ones one more */
    const uint64_t share = s->items / ranks, more = s->items % ranks;
    const uint64_t first = rank * share + (rank < more ? rank : more);
    const size_t count = (size_t)(share + (rank < more));
    s->status = GS_OK;
    s->n = 0;
    for (size_t i = 0; i < count && s->status == GS_OK; i++) {
        float *x = s->x + i * l->x_size;
        int32_t *ids = s->ids + i * l->id_size, *targets = s->targets + i * l->target_size;
        if (i % c->batch == 0)
            s->micro[s->n++] = (gs_batch){.time = l->id_size,
                                          .x = l->x_size ? x : NULL,
                                          .ids = l->id_size ? ids : NULL,
                                          .targets = targets};
        s->micro[s->n - 1].n++;
        s->status = gs_data_read(x, ids, targets, l->data, c->split,
                                 item_at(l, position + first + i), &s->error);
        if (s->status == GS_OK && l->work)
            gsi_augment(x, l->target_size > 1 ? targets : NULL, gs_data_get_info(l->data),
                        &c->augment, c->seed, position + first + i, l->work);
    }
}

static void *run(void *arg)
{
    gs_loader *l = arg;
    pthread_mutex_lock(&l->lock);
    while (!l->quit) {
        if (l->resting || l->filled + 2 > SLOTS) {
            pthread_cond_wait(&l->changed, &l->lock);
            continue;
        }
        slot *s = &l->slots[(l->first + l->filled) % SLOTS];
        const uint64_t route = l->route, at = l->ahead;
        pthread_mutex_unlock(&l->lock);
        read_step(l, s, at);
        pthread_mutex_lock(&l->lock);
        if (route != l->route)
            continue;
        l->filled++;
        l->ahead += s->items;
        l->resting = s->status != GS_OK;
        pthread_cond_signal(&l->changed);
    }
    pthread_mutex_unlock(&l->lock);
    return NULL;
}

/* ---- taking it ---- */

/* With the lock held: empties the ring and sends the thread to `position`. */
static void send_to(gs_loader *l, uint64_t position)
{
    l->filled = 0;
    l->ahead = position;
    l->resting = false;
    l->route++;
    pthread_cond_signal(&l->changed);
}

gs_status gs_loader_next(const gs_batch **micro, size_t *n, gs_loader *l, gs_error *error)
{
    if (!l || !micro || !n)
        return gsi_fail(error, GS_ENULL, "there is no loader, or nowhere to put its batch");
    *micro = NULL;
    *n = 0;
    l->waited = 0;
    pthread_mutex_lock(&l->lock);
    if (l->filled == 0) {
        const double start = gs_clock();
        while (l->filled == 0)
            pthread_cond_wait(&l->changed, &l->lock);
        l->waited = gs_clock() - start;
    }
    const slot *s = &l->slots[l->first % SLOTS];
    const gs_status status = s->status;
    if (status == GS_OK) {
        l->first++;
        l->filled--;
        l->position += s->items;
        pthread_cond_signal(&l->changed);
        *micro = s->micro;
        *n = s->n;
    } else {
        if (error)
            *error = s->error;
        send_to(l, l->position); /* the next call tries again */
    }
    pthread_mutex_unlock(&l->lock);
    return status;
}

gs_status gs_loader_seek(gs_loader *l, uint64_t items, gs_error *error)
{
    if (!l)
        return gsi_fail(error, GS_ENULL, "there is no loader");
    pthread_mutex_lock(&l->lock);
    l->position = items;
    send_to(l, items);
    pthread_mutex_unlock(&l->lock);
    return GS_OK;
}

uint64_t gs_loader_position(const gs_loader *l) { return l->position; }

double gs_loader_waited(const gs_loader *l) { return l->waited; }

/* ---- life ---- */

static bool is_augmented(const gs_augment *a)
{
    return a->crop > 0 || a->flip || a->cutout > 0 || a->color != 0;
}

static gs_status check_augment(const gs_data_info *info, const gs_augment *a, gs_error *error)
{
    if (!is_augmented(a))
        return GS_OK;
    if (info->task == GS_TASK_TOKENS)
        return gsi_fail(error, GS_ERANGE, "%s: tokens cannot be varied as images are", info->name);
    if (a->crop >= info->height || a->crop >= info->width)
        return gsi_fail(error, GS_ERANGE, "%s: images of %zu x %zu cannot be moved by %zu pixels",
                        info->name, info->height, info->width, a->crop);
    if (a->cutout > info->height || a->cutout > info->width)
        return gsi_fail(error, GS_ERANGE, "%s: images of %zu x %zu have no square of %zu pixels",
                        info->name, info->height, info->width, a->cutout);
    if (!(a->color >= 0 && a->color <= 1))
        return gsi_fail(error, GS_ERANGE, "colours vary by 0 to 1, not %g", (double)a->color);
    return GS_OK;
}

static gs_status check(const gs_data_info *info, const gs_loader_config *c, gs_error *error)
{
    if ((unsigned)c->split >= GS_SPLIT_COUNT)
        return gsi_fail(error, GS_ERANGE, "%s: has no split %d", info->name, (int)c->split);
    if (c->batch == 0)
        return gsi_fail(error, GS_ERANGE, "a batch of 0 items");
    if (c->ranks < 1 || c->rank < 0 || c->rank >= c->ranks)
        return gsi_fail(error, GS_ERANGE, "rank %d of %d", c->rank, c->ranks);
    if (info->items[c->split] == 0)
        return gsi_fail(error, GS_ESIZE, "%s: is too short to validate with a part of it",
                        info->name);
    return GS_OK;
}

static bool make_slot(gs_loader *l, slot *s)
{
    size_t items, x, ids;
    if (!gsi_mul_size(&items, l->config.batch, l->config.micro) ||
        !gsi_mul_size(&x, items, l->x_size) || !gsi_mul_size(&ids, items, l->id_size))
        return false;
    const size_t targets = items * l->target_size; /* never more than x or ids */
    s->micro = gsi_arena_new(&l->arena, l->config.micro, sizeof *s->micro);
    s->x = gsi_arena_new(&l->arena, x + 1, sizeof *s->x); /* never NULL, be it empty */
    s->ids = gsi_arena_new(&l->arena, ids + 1, sizeof *s->ids);
    s->targets = gsi_arena_new(&l->arena, targets, sizeof *s->targets);
    return s->micro && s->x && s->ids && s->targets;
}

/* Signals are for the threads of the program: this one takes none. */
static gs_status start(gs_loader *l, gs_error *error)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    l->started = pthread_create(&l->thread, NULL, run, l) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return l->started ? GS_OK : gsi_fail(error, GS_ETHREAD, "the loader's thread does not start");
}

gs_status gs_loader_create(gs_loader **out, gs_data *data, const gs_loader_config *config,
                           const gs_alloc *alloc, gs_error *error)
{
    if (!out || !data || !config)
        return gsi_fail(error, GS_ENULL, "there is no data to load");
    *out = NULL;
    const gs_data_info *info = gs_data_get_info(data);
    gs_loader_config c;
    gs_status status = gsi_config(&c, sizeof c, config, "gs_loader_config", error);
    if (status != GS_OK)
        return status;
    c.micro += c.micro == 0;
    c.ranks += c.ranks == 0;
    status = check(info, &c, error);
    if (status == GS_OK)
        status = check_augment(info, &c.augment, error);
    if (status != GS_OK)
        return status;
    gsi_heap heap;
    gsi_heap_init(&heap, alloc);
    gs_loader *l = gsi_new(&heap, sizeof *l);
    if (!l)
        return gsi_fail(error, GS_ENOMEM, "no memory for a loader");
    memset(l, 0, sizeof *l);
    l->heap = heap;
    gsi_arena_init(&l->arena, &l->heap);
    l->data = data;
    l->config = c;
    l->epoch = info->items[c.split];
    l->x_size = info->height * info->width * info->channels;
    l->id_size = info->time;
    l->target_size = info->task == GS_TASK_TOKENS   ? info->time
                     : info->task == GS_TASK_PIXELS ? info->height * info->width
                                                    : 1;
    pthread_mutex_init(&l->lock, NULL);
    pthread_cond_init(&l->changed, NULL);
    for (size_t i = 0; i < SLOTS && status == GS_OK; i++)
        if (!make_slot(l, &l->slots[i]))
            status = gsi_fail(error, GS_ENOMEM, "no memory for %zu items of %s at a time",
                              c.batch * c.micro, info->name);
    if (status == GS_OK && is_augmented(&c.augment)) {
        l->work = gsi_arena_new(&l->arena, l->x_size + l->target_size, sizeof(float));
        if (!l->work)
            status = gsi_fail(error, GS_ENOMEM, "no memory to vary images of %s", info->name);
    }
    if (status == GS_OK)
        status = start(l, error);
    if (status == GS_OK)
        *out = l;
    else
        gs_loader_free(l);
    return status;
}

void gs_loader_free(gs_loader *l)
{
    if (!l)
        return;
    if (l->started) {
        pthread_mutex_lock(&l->lock);
        l->quit = true;
        pthread_cond_signal(&l->changed);
        pthread_mutex_unlock(&l->lock);
        pthread_join(l->thread, NULL);
    }
    pthread_cond_destroy(&l->changed);
    pthread_mutex_destroy(&l->lock);
    gsi_arena_free(&l->arena);
    gsi_heap heap = l->heap; /* the loader lies in its own heap */
    gsi_free(&heap, l);
}

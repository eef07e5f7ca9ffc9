/* Saving and loading.
 *
 * (1) Saving changes nothing of the trainer.
 * (2) Loading changes all of it or nothing: the file is compared with the trainer, read into memory
 *     of its own and its checksum tested; what is left to be done then cannot fail, but for the
 *     half copies of the weights, and there the way back is the way there: arrays are exchanged.
 * (3) A file that does not fit is called damaged if it is, and else what it is. */
#include "train/checkpoint.h"

#include <stdio.h>
#include <string.h>

gs_status gs_checkpoint_save(const char *path, gs_trainer *trainer, const gs_checkpoint *about,
                             gs_error *error)
{
    if (!trainer || (!path && trainer->comm.rank == 0))
        return gsi_fail(error, GS_ENULL, "there is no path or no trainer to save");
    gsi_image image;
    gs_status status = gsi_image_list(&image, &trainer->ctx->heap, trainer, error);
    status = gsi_image_gather(&image, trainer, status, path != NULL, error);
    if (status == GS_OK && path)
        status = gsi_image_describe(&image, trainer, about, error);
    if (status == GS_OK && path)
        status = gsi_image_write(&image, path, error);
    gsi_image_free(&image);
    return status;
}

/* ---- is it intact? ---- */

static gs_status check_kind(const gs_source *s, gs_error *error)
{
    const gs_entry *last = gs_source_entry(s, gs_source_count(s) - 1); /* NULL: there is none */
    if (!last || !gs_source_metadata(s, "gradscale_checkpoint") ||
        strcmp(last->name, GSI_CHECKSUM_NAME) != 0 || strcmp(last->type, "U8") != 0 ||
        last->bytes != GSI_CHECKSUM_BYTES)
        return gsi_bad_file(s, error, GS_EFORMAT, "is no checkpoint of gradscale");
    return GS_OK;
}

/* Hashes bytes from..to, into dst unless that is NULL. */
static gs_status read_part(const gs_source *s, gsi_hash *hash, char *dst, uint64_t from,
                           uint64_t to, gs_error *error)
{
    enum { LARGE = 1 << 18 }; /* is hashed while it is in the cache */
    char piece[1 << 15];
    gs_status status = GS_OK;
    for (uint64_t at = from; status == GS_OK && at < to;) {
        const size_t most = dst ? LARGE : sizeof piece;
        const size_t n = to - at < most ? (size_t)(to - at) : most;
        char *const p = dst ? dst + (at - from) : piece;
        status = gsi_read_at(s, p, n, at, error);
        if (status == GS_OK)
            gsi_hash_add(hash, p, n);
        at += n;
    }
    return status;
}

/* All of the file, the tensors into `data` unless that is NULL; GS_ECHECKSUM if it is damaged. */
static gs_status read_all(const gs_source *s, char *data, gs_error *error)
{
    const uint64_t start = gs_source_entry(s, 0)->offset, end = s->file.size - GSI_CHECKSUM_BYTES;
    uint8_t checksum[GSI_CHECKSUM_BYTES];
    gsi_hash hash;
    gsi_hash_init(&hash);
    gs_status status = read_part(s, &hash, NULL, 0, start, error);
    if (status == GS_OK)
        status = read_part(s, &hash, data, start, end, error);
    if (status == GS_OK)
        status = gsi_read_at(s, checksum, sizeof checksum, end, error);
    if (status == GS_OK && gsi_little(checksum, 8) != gsi_hash_end(&hash))
        status = gsi_bad_file(s, error, GS_ECHECKSUM, "is damaged: its checksum does not match");
    const size_t swapped = (s->count - 1) * gsi_big_endian();
    for (size_t i = 0; status == GS_OK && data && i < swapped; i++) { /* uncovered: big-endian */
        const gsi_entry *e = &s->entries[i];
        gsi_swap_bytes(data + (e->pub.offset - start), (size_t)e->pub.count, (size_t)e->item);
    }
    return status;
}

gs_status gs_checkpoint_verify(const char *path, gs_error *error)
{
    gs_source *s;
    gs_status status = gs_source_open(&s, path, NULL, error);
    if (status != GS_OK)
        return status;
    status = check_kind(s, error);
    if (status == GS_OK)
        status = read_all(s, NULL, error);
    gs_source_close(s);
    return status;
}

/* ---- does it fit? ---- */

static gs_status check_version(const gs_source *s, gs_error *error)
{
    char ours[16], shown[GSI_SHOWN];
    const char *version = gs_source_metadata(s, "gradscale_checkpoint");
    snprintf(ours, sizeof ours, "%d", (int)GSI_CHECKPOINT_VERSION);
    if (strcmp(version, ours) == 0)
        return GS_OK;
    return gsi_bad_file(s, error, GS_EVERSION,
                        "is a checkpoint of version %s, and gradscale %s reads version %s",
                        gsi_show(shown, version, strlen(version)), gs_version(), ours);
}

/* Two texts from the word on in which they differ. */
static gs_status check_text(const gs_source *s, const char *key, const char *ours, gs_status status,
                            gs_error *error)
{
    char shown[2][GSI_SHOWN];
    const char *theirs = gs_source_metadata(s, key);
    size_t n = 0;
    if (!theirs)
        return gsi_bad_file(s, error, GS_EFORMAT, "does not say its %s", key);
    if (strcmp(theirs, ours) == 0)
        return GS_OK;
    while (ours[n] && ours[n] == theirs[n])
        n++;
    while (n > 0 && ours[n - 1] != ' ')
        n--;
    return gsi_bad_file(s, error, status, "is of another %s: %s in the file, %s here", key,
                        theirs[n] ? gsi_show(shown[0], theirs + n, strlen(theirs + n)) : "nothing",
                        ours[n] ? gsi_show(shown[1], ours + n, strlen(ours + n)) : "nothing");
}

static bool same_shape(const gsi_tensor *x, const gs_entry *e)
{
    bool same = x->dtype == e->dtype && x->rank == e->rank;
    for (int d = 0; same && d < x->rank; d++)
        same = x->shape[d] == e->shape[d];
    return same;
}

static const char *shape_text(char text[48], gs_dtype dtype, int rank, const uint64_t *shape)
{
    const char *type = dtype < GS_DTYPE_COUNT ? gs_dtype_format(dtype)->name : "another type";
    if (rank == 1)
        snprintf(text, 48, "%s [%llu]", type, (unsigned long long)shape[0]);
    else if (rank == 2)
        snprintf(text, 48, "%s [%llu %llu]", type, (unsigned long long)shape[0],
                 (unsigned long long)shape[1]);
    else
        snprintf(text, 48, "%s of rank %d", type, rank);
    return text;
}

/* Both lists are in the order of the file; from i on they differ. Says in what. */
static gs_status name_difference(const gs_source *s, const gsi_image *image, size_t i,
                                 gs_error *error)
{
    const size_t count = gs_source_count(s) - 1; /* without the checksum */
    char shown[GSI_SHOWN], a[48], b[48];
    for (size_t k = i; k < image->n; k++) {
        const gsi_tensor *x = &image->list[k];
        const gs_entry *e = NULL;
        for (size_t m = i; m < count && !e; m++)
            e = strcmp(gs_source_entry(s, m)->name, x->name) == 0 ? gs_source_entry(s, m) : NULL;
        gsi_show(shown, x->name, strlen(x->name));
        if (!e)
            return gsi_bad_file(s, error, GS_ENAME, "has no tensor %s, which this trainer has",
                                shown);
        if (!same_shape(x, e))
            return gsi_bad_file(s, error, GS_ESIZE, "its tensor %s is %s, and here %s", shown,
                                shape_text(a, e->dtype, e->rank, e->shape),
                                shape_text(b, x->dtype, x->rank, x->shape));
    }
    for (size_t m = i; m < count; m++) {
        const char *name = gs_source_entry(s, m)->name;
        bool known = false;
        for (size_t k = i; k < image->n && !known; k++)
            known = strcmp(image->list[k].name, name) == 0;
        if (!known)
            return gsi_bad_file(s, error, GS_ENAME, "has a tensor %s, which this trainer has not",
                                gsi_show(shown, name, strlen(name)));
    }
    return gsi_bad_file(s, error, GS_EFORMAT, "its tensors are not in order");
}

static gs_status check_tensors(const gs_source *s, const gsi_image *image, gs_error *error)
{
    const size_t count = gs_source_count(s) - 1;
    for (size_t i = 0; i < image->n || i < count; i++)
        if (i >= image->n || i >= count ||
            strcmp(image->list[i].name, gs_source_entry(s, i)->name) != 0 ||
            !same_shape(&image->list[i], gs_source_entry(s, i)))
            return name_difference(s, image, i, error);
    return GS_OK;
}

static gs_status check_all(const gs_source *s, gs_trainer *t, const char *model,
                           const gsi_image *image, gsi_facts *facts, gs_scaler *scaler,
                           gs_error *error)
{
    char text[GS_CHECKPOINT_LINE];
    gs_error why = {0};
    gs_status status = check_version(s, error);
    if (status == GS_OK && model)
        status = check_text(s, "model", model, GS_ENAME, error);
    gsi_precision_text(text, t);
    if (status == GS_OK)
        status = check_text(s, "precision", text, GS_EDTYPE, error);
    gsi_optimizer_text(text, t);
    if (status == GS_OK)
        status = check_text(s, "optimizer", text, GS_ENAME, error);
    if (status == GS_OK)
        status = check_tensors(s, image, error);
    if (status == GS_OK)
        status = gsi_read_facts(facts, s, error);
    if (status != GS_OK)
        return status;
    const char *state = gs_source_metadata(s, "scaler");
    status = gs_scaler_load_text(scaler, state ? state : "", state ? strlen(state) : 0, &why);
    return status == GS_OK ? status : gsi_bad_file(s, error, status, "its scaler: %s", why.text);
}

/* ---- loading ---- */

/* Exchanges the trainer's arrays with those in data. Twice is nothing. */
static void exchange(gs_trainer *t, const gsi_image *image, char *data)
{
    for (size_t i = 0; i < image->n; i++) {
        const gsi_tensor *x = &image->list[i];
        char piece[4096], *p = x->data;
        const size_t bytes = (size_t)x->count * gs_dtype_format(x->dtype)->bytes;
        const gsi_origin *o = &image->origins[x->tag];
        if (o->sharded) { /* taken, and no way back is needed */
            gsi_unsharded_take(t, &image->unsharded, o->family, o->weight, data);
            data += bytes;
            continue;
        }
        for (size_t left = bytes; left > 0;) {
            const size_t n = left < sizeof piece ? left : sizeof piece;
            memcpy(piece, p, n);
            memcpy(p, data, n);
            memcpy(data, piece, n);
            p += n;
            data += n;
            left -= n;
        }
    }
}

static gs_status commit(gs_trainer *t, const gsi_image *image, char *data, const gsi_facts *facts,
                        const gs_scaler *scaler)
{
    const gs_optim_state before = gs_optim_get_state(t->optim);
    gs_status status = gs_optim_set_state(t->optim, &facts->optim);
    if (status != GS_OK)
        return status;
    exchange(t, image, data);
    status = gs_trainer_sync(t);
    if (status != GS_OK) {
        exchange(t, image, data);
        gs_optim_set_state(t->optim, &before);
        return status;
    }
    t->scaler = *scaler;
    t->seed = facts->seed;
    t->steps = facts->batches;
    return GS_OK;
}

/* A file as it is to be taken over. */
typedef struct loaded {
    gsi_image image;
    gsi_facts facts;
    gs_scaler scaler;
    char *data;
} loaded;

static gs_status read_file(loaded *l, gs_source *s, gs_trainer *t, const char *model,
                           gs_error *error)
{
    gs_status status = check_kind(s, error);
    if (status != GS_OK)
        return status;
    status = check_all(s, t, model, &l->image, &l->facts, &l->scaler, error);
    if (status != GS_OK) {
        gs_error damage;
        if (read_all(s, NULL, &damage) != GS_ECHECKSUM)
            return status;
        if (error)
            *error = damage;
        return GS_ECHECKSUM;
    }
    const uint64_t bytes = l->image.bytes;
    l->data = bytes <= SIZE_MAX ? gsi_new(&t->ctx->heap, (size_t)bytes) : NULL;
    return l->data ? read_all(s, l->data, error) : gsi_no_memory(s, error);
}

static gs_status load(loaded *l, const char *path, gs_trainer *t, const char *model,
                      gs_error *error)
{
    const gs_alloc hook = t->ctx->heap.hook;
    gs_source *s = NULL;
    gs_status status = gs_source_open(&s, path, &hook, error);
    if (status == GS_OK)
        status = gsi_image_list(&l->image, &t->ctx->heap, t, error);
    if (status == GS_OK)
        status = read_file(l, s, t, model, error);
    status = gsi_ranks_first_error(t, status, error);
    if (status == GS_OK) {
        status = commit(t, &l->image, l->data, &l->facts, &l->scaler);
        if (status != GS_OK)
            gsi_bad_file(s, error, status, "%s", t->ctx->error.text);
    }
    if (status == GS_OK) { /* or did each find a file of its own? */
        status = gsi_ranks_compare_now(t);
        if (status != GS_OK)
            gsi_fail(error, status, "%s", t->ctx->error.text);
    }
    if (s)
        gs_source_close(s);
    return status;
}

gs_status gs_checkpoint_load(const char *path, gs_trainer *trainer, gs_checkpoint *about,
                             gs_error *error)
{
    if (!path || !trainer)
        return gsi_fail(error, GS_ENULL, "there is no path or no trainer to load");
    loaded l = {0};
    const gs_status status = load(&l, path, trainer, about ? about->model : NULL, error);
    gsi_image_free(&l.image);
    gsi_free(&trainer->ctx->heap, l.data);
    if (status == GS_OK && about) {
        l.facts.about.config = about->config;
        l.facts.about.model = about->model;
        l.facts.about.data = about->data;
        *about = l.facts.about;
    }
    return status;
}

/* ---- looking ---- */

static gs_status keep_text(char *out, size_t room, const gs_source *s, const char *key,
                           gs_error *error)
{
    const char *text = gs_source_metadata(s, key);
    if (!text || strlen(text) >= room)
        return gsi_bad_file(s, error, text ? GS_ESIZE : GS_EFORMAT,
                            text ? "its %s is too long" : "does not say its %s", key);
    strcpy(out, text);
    return GS_OK;
}

static gs_status peek(const gs_source *s, gs_checkpoint_text *out, gs_error *error)
{
    const struct {
        const char *key;
        char *text;
        size_t room;
    } texts[] = {{"config", out->config, sizeof out->config},
                 {"model", out->model, sizeof out->model},
                 {"precision", out->precision, sizeof out->precision},
                 {"optimizer", out->optimizer, sizeof out->optimizer}};
    gsi_facts facts;
    gs_status status = check_kind(s, error);
    if (status == GS_OK)
        status = check_version(s, error);
    for (size_t i = 0; status == GS_OK && i < GSI_COUNT(texts); i++)
        status = keep_text(texts[i].text, texts[i].room, s, texts[i].key, error);
    if (status == GS_OK)
        status = gsi_read_facts(&facts, s, error);
    if (status != GS_OK)
        return status;
    out->about = facts.about;
    out->about.config = out->config;
    out->about.model = out->model;
    return GS_OK;
}

gs_status gs_checkpoint_peek(gs_checkpoint_text *out, const char *path, gs_error *error)
{
    gs_source *s;
    if (!out)
        return gsi_fail(error, GS_ENULL, "there is no place for what the file says");
    gs_status status = gs_source_open(&s, path, NULL, error);
    if (status != GS_OK)
        return status;
    status = peek(s, out, error);
    gs_source_close(s);
    return status;
}

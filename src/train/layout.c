/* The layouts of weights in files.
 *
 *     here                      elsewhere
 *     [rows, cols]              the same: PyTorch's Linear, embeddings; a vector
 *     [out, kh kw in]           PyTorch's Conv2d [out, in, kh, kw]
 *     [out, h w channels]       PyTorch's Linear after a flatten of [channels, h, w]
 *     [out, in]                 GPT-2's Conv1D [in, out], where the file has them so
 *     [rows, cols]              torchvision's [1, rows, cols]: a ViT's class token and positions
 *
 * A GPT's file says by the shape of its c_attn, which is never square, whether its matrices are
 * transposed. Names are PyTorch's; files of models without a head, and the published ones of GPT-2,
 * leave "transformer." or "model." out. */
#include "train/layout.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const gs_layout none;

static const gs_layout *layout_of(const gs_model *m, size_t i)
{
    return m->layouts ? &m->layouts[i] : &none;
}

/* ---- order ---- */

/* to[rows][b][a] = from[rows][a][b] */
static void swap_axes(float *to, const float *from, size_t rows, size_t a, size_t b)
{
    for (size_t r = 0; r < rows; r++, to += a * b, from += a * b)
        for (size_t i = 0; i < a; i++)
            for (size_t k = 0; k < b; k++)
                to[k * a + i] = from[i * b + k];
}

int gsi_layout_shape(size_t shape[4], const gs_model *m, size_t i)
{
    const gs_store_entry *e = &m->entries[i];
    const gs_layout *l = layout_of(m, i);
    if (l->rank == 3) {
        const size_t as[] = {1, e->rows, e->cols};
        memcpy(shape, as, sizeof as);
        return 3;
    }
    if (l->rank == 4) {
        const size_t as[] = {e->rows, e->cols / (l->kh * l->kw), l->kh, l->kw};
        memcpy(shape, as, sizeof as);
        return 4;
    }
    shape[0] = e->rows == 1 || l->transposed ? e->cols : e->rows;
    shape[1] = l->transposed ? e->rows : e->cols;
    return e->rows == 1 ? 1 : 2;
}

void gsi_layout_out(float *out, const float *in, const gs_model *m, size_t i)
{
    const gs_store_entry *e = &m->entries[i];
    const gs_layout *l = layout_of(m, i);
    const size_t taps = l->kh * l->kw;
    if (taps > 1)
        swap_axes(out, in, e->rows, taps, e->cols / taps);
    else if (l->transposed)
        swap_axes(out, in, 1, e->rows, e->cols);
    else
        memcpy(out, in, e->rows * e->cols * sizeof *out);
}

static void layout_in(float *out, const float *in, const gsi_weights_file *f, size_t i)
{
    const gs_store_entry *e = &f->model->entries[i];
    const gs_layout *l = layout_of(f->model, i);
    const size_t taps = l->kh * l->kw;
    if (!f->ours && taps > 1)
        swap_axes(out, in, e->rows, e->cols / taps, taps);
    else if (!f->ours && l->transposed && !f->straight)
        swap_axes(out, in, 1, e->cols, e->rows);
    else
        memcpy(out, in, e->rows * e->cols * sizeof *out);
}

/* ---- a file ---- */

/* What files may leave out at the beginning of a name. */
static size_t prefix_of(const char *name)
{
    static const char *const prefixes[] = {"transformer.", "model."};
    for (size_t i = 0; i < sizeof prefixes / sizeof prefixes[0]; i++)
        if (strncmp(name, prefixes[i], strlen(prefixes[i])) == 0)
            return strlen(prefixes[i]);
    return 0;
}

static size_t find(const gsi_weights_file *f, const char *name)
{
    const size_t n = gs_source_count(f->source), skip = prefix_of(name);
    for (int bare = 0; bare <= (skip > 0); bare++)
        for (size_t i = 0; i < n; i++)
            if (strcmp(gs_source_entry(f->source, i)->name, bare ? name + skip : name) == 0)
                return i;
    return SIZE_MAX;
}

gs_status gsi_weights_open(gsi_weights_file *f, const char *path, const gs_model *model,
                           gs_context *ctx, gs_error *error)
{
    *f = (gsi_weights_file){.model = model, .ctx = ctx};
    const gs_alloc hook = ctx->heap.hook;
    const gs_status status = gs_source_open(&f->source, path, &hook, error);
    if (status != GS_OK)
        return status;
    f->ours = gs_source_metadata(f->source, "gradscale_checkpoint") != NULL;
    for (size_t i = 0; i < model->n; i++) {
        const gs_store_entry *e = &model->entries[i];
        const size_t at = find(f, e->name);
        if (!layout_of(model, i)->transposed || at == SIZE_MAX || e->rows == e->cols)
            continue;
        f->straight = gs_source_entry(f->source, at)->shape[0] == e->rows; /* the first decides */
        break;
    }
    return GS_OK;
}

void gsi_weights_close(gsi_weights_file *f)
{
    gs_source_close(f->source);
    f->source = NULL;
}

static const char *shape_text(char text[96], int rank, const uint64_t *shape)
{
    size_t n = (size_t)snprintf(text, 96, "[");
    for (int i = 0; i < rank && n < 80; i++)
        n += (size_t)snprintf(text + n, 96 - n, "%s%llu", i ? " " : "",
                              (unsigned long long)shape[i]);
    snprintf(text + n, 96 - n, "]");
    return text;
}

/* Elements of entry `at` as f32. */
static gs_status read_floats(float *out, const gsi_weights_file *f, size_t at, gs_error *error)
{
    const gs_entry *e = gs_source_entry(f->source, at);
    enum { PIECE = 1 << 16 };
    gs_status status = GS_OK;
    if (e->dtype == GS_F32)
        return gs_source_read(out, f->source, at, 0, (size_t)e->count, error);
    double *piece = gsi_new(&f->ctx->heap, PIECE * sizeof *piece);
    if (!piece)
        return gsi_fail(error, GS_ENOMEM, "no memory to read weights");
    for (uint64_t i = 0; status == GS_OK && i < e->count; i += PIECE) {
        const size_t n = e->count - i < PIECE ? (size_t)(e->count - i) : PIECE;
        status = gs_source_read(piece, f->source, at, i, n, error);
        for (size_t k = 0; status == GS_OK && k < n; k++)
            out[i + k] =
                e->dtype == GS_F64 ? (float)piece[k] : gsi_float(gsi_element(piece, e->dtype, k));
    }
    gsi_free(&f->ctx->heap, piece);
    return status;
}

/* Finds `name` and checks its type and shape. */
static gs_status look_up(size_t *at, const gsi_weights_file *f, const char *name, int rank,
                         const uint64_t *shape, gs_error *error)
{
    char shown[GSI_SHOWN], is[96], wanted[96];
    *at = find(f, name);
    gsi_show(shown, name, strlen(name));
    if (*at == SIZE_MAX)
        return gsi_bad_file(f->source, error, GS_ENAME, "has no tensor %s, which the model has",
                            shown);
    const gs_entry *e = gs_source_entry(f->source, *at);
    if (!gs_entry_readable(e))
        return gsi_bad_file(f->source, error, GS_EDTYPE, "its tensor %s is of type %s", shown,
                            e->type);
    if (e->rank != rank || memcmp(e->shape, shape, (size_t)rank * sizeof *shape) != 0)
        return gsi_bad_file(f->source, error, GS_ESIZE, "its tensor %s is %s, and the model's %s",
                            shown, shape_text(is, e->rank, e->shape),
                            shape_text(wanted, rank, shape));
    return GS_OK;
}

gs_status gsi_weights_read(float *out, const gsi_weights_file *f, size_t i, gs_error *error)
{
    const gs_store_entry *e = &f->model->entries[i];
    const bool same = f->ours || (layout_of(f->model, i)->transposed && f->straight);
    size_t as[4] = {e->rows == 1 ? e->cols : e->rows, e->cols}, at;
    uint64_t shape[4];
    const int rank = same ? 2 - (e->rows == 1) : gsi_layout_shape(as, f->model, i);
    for (int d = 0; d < rank; d++)
        shape[d] = as[d];
    gs_status status = look_up(&at, f, e->name, rank, shape, error);
    if (status != GS_OK)
        return status;
    float *raw = gsi_new(&f->ctx->heap, e->rows * e->cols * sizeof *raw);
    if (!raw)
        return gsi_bad_file(f->source, error, GS_ENOMEM, "no memory for its tensor %s", e->name);
    status = read_floats(raw, f, at, error);
    if (status == GS_OK)
        layout_in(out, raw, f, i);
    gsi_free(&f->ctx->heap, raw);
    return status;
}

gs_status gsi_weights_read_state(float *out, const gsi_weights_file *f, size_t i, gs_error *error)
{
    const gs_state_entry *e = &f->model->state_entries[i];
    const uint64_t shape[] = {e->count};
    size_t at;
    if (i >= f->model->n_states - f->model->n_ranges && find(f, e->name) == SIZE_MAX) {
        out[0] = 0; /* a range that the file has not seen */
        return GS_OK;
    }
    const gs_status status = look_up(&at, f, e->name, 1, shape, error);
    return status == GS_OK ? read_floats(out, f, at, error) : status;
}

/* ---- what a file has beyond the model ---- */

static bool in_model(const gs_model *m, const char *name)
{
    for (size_t i = 0; i < m->n; i++)
        if (strcmp(m->entries[i].name, name) == 0)
            return true;
    return false;
}

static gs_status check_absent(const gsi_weights_file *f, const char *name, gs_error *error)
{
    char shown[GSI_SHOWN];
    if (in_model(f->model, name) || find(f, name) == SIZE_MAX)
        return GS_OK;
    return gsi_bad_file(f->source, error, GS_ENAME,
                        "has a tensor %s, which the model does not have",
                        gsi_show(shown, name, strlen(name)));
}

/* The names that a weight would have in the next layer, block or stage: each of its numbers is one
 * higher, one at a time; and that of its bias. */
static gs_status check_neighbours(const gsi_weights_file *f, const char *name, gs_error *error)
{
    char next[256];
    const size_t n = strlen(name), stem = n - strlen("weight");
    gs_status status = GS_OK;
    for (const char *p = name; status == GS_OK && *(p += strcspn(p, "0123456789"));) {
        char *end;
        const unsigned long long number = strtoull(p, &end, 10);
        if (snprintf(next, sizeof next, "%.*s%llu%s", (int)(p - name), name, number + 1, end) <
            (int)sizeof next)
            status = check_absent(f, next, error);
        p = end;
    }
    if (status == GS_OK && n > strlen(".weight") && strcmp(name + stem - 1, ".weight") == 0 &&
        snprintf(next, sizeof next, "%.*sbias", (int)stem, name) < (int)sizeof next)
        status = check_absent(f, next, error);
    return status;
}

/* A head of its own, where the model's is its embedding `i`: they must be equal. */
static gs_status check_head(const gsi_weights_file *f, size_t i, gs_error *error)
{
    static const char head[] = "lm_head.weight";
    const gs_store_entry *e = &f->model->entries[i];
    const size_t count = e->rows * e->cols;
    size_t at;
    if (in_model(f->model, head) || find(f, head) == SIZE_MAX)
        return GS_OK;
    gs_status status =
        look_up(&at, f, head, 2, (const uint64_t[]){(uint64_t)e->rows, (uint64_t)e->cols}, error);
    if (status != GS_OK)
        return status;
    float *both = gsi_new(&f->ctx->heap, 2 * count * sizeof *both); /* the file holds as much */
    if (!both)
        return gsi_bad_file(f->source, error, GS_ENOMEM, "no memory for its tensor %s", head);
    status = read_floats(both, f, at, error);
    if (status == GS_OK)
        status = read_floats(both + count, f, find(f, e->name), error);
    if (status == GS_OK && memcmp(both, both + count, count * sizeof *both) != 0)
        status = gsi_bad_file(f->source, error, GS_ENAME,
                              "its tensor %s is not %s, and the model's head is tied to that", head,
                              e->name);
    gsi_free(&f->ctx->heap, both);
    return status;
}

/* Does a weight of the file lie among the blocks that a weight of the model is of? "h.0.a.weight"
 * does for "transformer.h.7.b.weight". */
static bool is_beside(const char *name, const char *of)
{
    static const char digits[] = "0123456789";
    const size_t skip = prefix_of(of);
    for (int bare = 0; bare <= (skip > 0); bare++, of += skip) {
        const size_t n = strcspn(of, digits);
        if (n > 0 && of[n] && strncmp(name, of, n) == 0 && name[n] && strchr(digits, name[n]))
            return true;
    }
    return false;
}

static bool is_of_model(const gs_model *m, const char *name)
{
    for (size_t i = 0; i < m->n; i++) {
        const char *own = m->entries[i].name;
        if (strcmp(own, name) == 0 || strcmp(own + prefix_of(own), name) == 0)
            return true;
    }
    return false;
}

/* Weights inside of blocks that the model's do not have, such as a gate or one more norm: without
 * them the others mean something else. Buffers are not called so. */
static gs_status check_blocks(const gsi_weights_file *f, gs_error *error)
{
    const gs_model *m = f->model;
    char shown[GSI_SHOWN];
    for (size_t k = 0; k < gs_source_count(f->source); k++) {
        const char *name = gs_source_entry(f->source, k)->name;
        const size_t n = strlen(name), end = strlen(".weight");
        bool beside = false;
        if (n < end || strcmp(name + n - end, ".weight") != 0)
            continue;
        for (size_t i = 0; !beside && i < m->n; i++)
            beside = is_beside(name, m->entries[i].name);
        if (beside && !is_of_model(m, name))
            return gsi_bad_file(f->source, error, GS_ENAME,
                                "has a tensor %s, which the model does not have",
                                gsi_show(shown, name, n));
    }
    return GS_OK;
}

gs_status gsi_weights_check_rest(const gsi_weights_file *f, gs_error *error)
{
    gs_status status = GS_OK;
    for (size_t i = 0; status == GS_OK && i < f->model->n; i++) {
        const char *name = f->model->entries[i].name;
        status = check_neighbours(f, name, error);
        if (status == GS_OK && strcmp(name, "transformer.wte.weight") == 0)
            status = check_absent(f, "transformer.wpe.weight", error); /* rotary has none */
        if (status == GS_OK && (strcmp(name, "transformer.wte.weight") == 0 ||
                                strcmp(name, "model.embed_tokens.weight") == 0))
            status = check_head(f, i, error);
    }
    return status == GS_OK ? check_blocks(f, error) : status;
}

/* Adafactor (Shazeer and Stern 2018), without momentum, with its relative learning rate.
 *
 * Of a matrix with at least LEAST rows and columns only the means of squares over rows and over
 * columns are kept; v is their outer product. Three passes, as each needs all of the one before:
 *
 *   squares     reads gradients               sums over rows and columns, tile by tile
 *   norms       reads gradients and weights   root mean squares of directions and weights
 *   step        reads both, writes weights
 *
 * A vector keeps a full v and needs the last two only: they are LAMB's kernels with beta1 0. */
#include "kernel/fpenv.h"
#include "optim/optim.h"

#include <math.h>
#include <string.h>

enum { LEAST = 128 }; /* below, factors save little and cost accuracy */
enum { TILE = 1024 }; /* rows and columns: partial sums take 1/128 of the gradients' memory */

bool gsi_is_factored(const gs_weight *w) { return w->rows >= LEAST && w->cols >= LEAST; }

static size_t tiles_over(size_t length) { return gsi_ceil_div(length, TILE); }

gs_status gsi_adafactor_create(gs_optim *o)
{
    gsi_heap *heap = &o->ctx->heap;
    size_t rows = 0, cols = 0, tiles = 0, bytes;
    o->factor.tiles = gsi_new(heap, o->n * sizeof *o->factor.tiles);
    o->factor.row_at = gsi_new(heap, o->n * sizeof *o->factor.row_at);
    o->factor.col_at = gsi_new(heap, o->n * sizeof *o->factor.col_at);
    o->factor.shrink = gsi_new(heap, o->n * sizeof *o->factor.shrink);
    if (!o->factor.tiles || !o->factor.row_at || !o->factor.col_at || !o->factor.shrink)
        return gsi_fail(&o->ctx->error, GS_ENOMEM, "no memory for an optimizer");
    for (size_t t = 0; t < o->n; t++) {
        const gs_weight *w = &o->weights[t];
        const bool factored = gsi_is_factored(w);
        o->factor.tiles[t] = (gsi_tiles){tiles, factored ? tiles_over(w->rows) : 0,
                                         factored ? tiles_over(w->cols) : 0};
        o->factor.row_at[t] = rows;
        o->factor.col_at[t] = cols;
        tiles += o->factor.tiles[t].down * o->factor.tiles[t].across;
        rows += factored ? w->rows : 0;
        cols += factored ? w->cols : 0;
    }
    o->factor.n_tiles = tiles;
    o->factor.owner = gsi_new(heap, tiles * sizeof *o->factor.owner);
    o->factor.row = gsi_new(heap, rows * sizeof *o->factor.row);
    o->factor.col = gsi_new(heap, cols * sizeof *o->factor.col);
    if (gsi_mul_size(&bytes, tiles, 2 * TILE * sizeof *o->factor.sums))
        o->factor.sums = gsi_new(heap, bytes);
    if (!o->factor.owner || !o->factor.row || !o->factor.col || !o->factor.sums)
        return gsi_fail(&o->ctx->error, GS_ENOMEM, "no memory for the sums of %zu tiles", tiles);
    for (size_t t = 0; t < o->n; t++) {
        const gsi_tiles *f = &o->factor.tiles[t];
        for (size_t i = 0; i < f->down * f->across; i++)
            o->factor.owner[f->first + i] = t;
    }
    return GS_OK;
}

void gsi_adafactor_free(gs_optim *o)
{
    void *const all[] = {o->factor.tiles, o->factor.owner,  o->factor.sums,   o->factor.row,
                         o->factor.col,   o->factor.row_at, o->factor.col_at, o->factor.shrink};
    for (size_t i = 0; i < GSI_COUNT(all); i++)
        gsi_free(&o->ctx->heap, all[i]);
}

/* ---- squares ---- */

static double *sums_of(const gs_optim *o, size_t tile) { return o->factor.sums + tile * 2 * TILE; }

static void squares_tile(void *arg, size_t i)
{
    const gsi_update *u = arg;
    const gs_optim *o = u->optim;
    const size_t t = o->factor.owner[i];
    const gs_weight *w = &o->weights[t];
    const gsi_tiles *f = &o->factor.tiles[t];
    const size_t top = (i - f->first) / f->across * TILE, left = (i - f->first) % f->across * TILE;
    const size_t rows = w->rows - top < TILE ? w->rows - top : TILE;
    const size_t cols = w->cols - left < TILE ? w->cols - left : TILE;
    double *const row_sums = sums_of(o, i), *const col_sums = row_sums + TILE;
    if (!gsi_has_grad(o, t))
        return;

    const uint64_t env = gsi_fpenv_enter_flush();
    memset(col_sums, 0, TILE * sizeof *col_sums);
    for (size_t r = 0; r < rows; r++)
        row_sums[r] = o->ctx->kernels.optim.squares[w->grad_dtype](
            col_sums, gsi_tensor_at(&o->grads[t], (top + r) * w->cols + left), cols, &u->factor);
    gsi_fpenv_leave(env);
}

/* Moves the factors of a matrix towards the new means and takes what the steps multiply by:
 * direction = g / sqrt(row * col / mean(row)). */
static void update_factors(const gsi_update *u, size_t t)
{
    const gs_optim *o = u->optim;
    const gs_weight *w = &o->weights[t];
    const gsi_tiles *f = &o->factor.tiles[t];
    float *const row = gsi_slot_of(o, t, GS_SLOT_ROW)->data;
    float *const col = gsi_slot_of(o, t, GS_SLOT_COL)->data;
    float *const by_row = o->factor.row + o->factor.row_at[t];
    float *const by_col = o->factor.col + o->factor.col_at[t];
    const double beta = (double)o->own[t].beta2, rest = (double)o->own[t].rest2;
    double total = 0;
    for (size_t r = 0; r < w->rows; r++) {
        double sum = 0;
        for (size_t k = 0; k < f->across; k++)
            sum += sums_of(o, f->first + r / TILE * f->across + k)[r % TILE];
        row[r] = (float)(beta * (double)row[r] + rest * sum / (double)w->cols);
        total += (double)row[r];
    }
    for (size_t c = 0; c < w->cols; c++) {
        double sum = 0;
        for (size_t k = 0; k < f->down; k++)
            sum += sums_of(o, f->first + k * f->across + c / TILE)[TILE + c % TILE];
        col[c] = (float)(beta * (double)col[c] + rest * sum / (double)w->rows);
        by_col[c] = (float)(1 / sqrt((double)col[c]));
    }
    for (size_t r = 0; r < w->rows; r++)
        by_row[r] = (float)sqrt(total / (double)w->rows / (double)row[r]);
}

/* ---- norms and step ---- */

/* The part of a span that lies in one row. */
typedef struct segment {
    size_t at, count; /* in the span */
    const float *col;
    float row;
} segment;

static segment segment_at(const gs_optim *o, gsi_span span, size_t at)
{
    const size_t cols = o->weights[span.t].cols;
    const size_t r = (span.first + at) / cols, c = (span.first + at) % cols;
    const size_t left = span.count - at, room = cols - c;
    return (segment){at, left < room ? left : room, o->factor.col + o->factor.col_at[span.t] + c,
                     o->factor.row[o->factor.row_at[span.t] + r]};
}

static const void *grad_at(const gs_optim *o, const gsi_slice *s, size_t t, size_t i)
{
    return (const char *)s->grad + i * gsi_size_of(o->grads[t].dtype);
}

static void norms_kernel(const gsi_update *u, const gsi_slice *s, gsi_span at, gsi_result *r)
{
    const gs_optim *o = u->optim;
    const gs_dtype grad = o->grads[at.t].dtype;
    if (o->factor.tiles[at.t].down == 0) {
        gsi_adam set = u->adam;
        set.beta2 = o->own[at.t].beta2;
        set.rest2 = o->own[at.t].rest2;
        o->ctx->kernels.optim.lamb[grad](&r->norms, s, at.count, &set);
        return;
    }
    gsi_fpenv_write(GSI_FPENV_DEFAULT); /* a scan is defined so */
    o->ctx->kernels.pass.scan[GS_F32](&r->norms.weight, s->weight, at.count);
    gsi_fpenv_write(GSI_FPENV_FLUSH);
    for (size_t i = 0; i < at.count;) {
        const segment part = segment_at(o, at, i);
        r->norms.direction += o->ctx->kernels.optim.factored[grad](
            part.col, part.row, grad_at(o, s, at.t, i), part.count, &u->factor);
        i += part.count;
    }
}

static void step_kernel(const gsi_update *u, const gsi_slice *s, gsi_span at, gsi_result *r)
{
    const gs_optim *o = u->optim;
    const gs_dtype grad = o->grads[at.t].dtype;
    const double alpha = (double)o->alpha[at.t], decay = o->own[at.t].decay;
    if (o->factor.tiles[at.t].down == 0) {
        gsi_adam set = u->adam;
        set.unbias = o->factor.shrink[at.t];
        set.l2 = gsi_setting(decay);
        r->top = o->ctx->kernels.optim.lamb_step(s, at.count, &set, o->alpha[at.t]);
        return;
    }
    gsi_factor set = u->factor;
    set.lr = gsi_setting(alpha * (double)o->factor.shrink[at.t]);
    set.retain = gsi_setting(alpha * decay < 1 ? 1 - alpha * decay : 0);
    for (size_t i = 0; i < at.count;) {
        const segment part = segment_at(o, at, i);
        gsi_slice row = *s;
        row.weight += i;
        row.copy = s->copy ? s->copy + i : NULL;
        row.grad = grad_at(o, s, at.t, i);
        const uint32_t top =
            o->ctx->kernels.optim.factor_step[grad](&row, part.col, part.row, part.count, &set);
        r->top = top > r->top ? top : r->top;
        i += part.count;
    }
}

static void norms_chunk(void *u, size_t i) { gsi_run_chunk(u, i, GSI_MOMENTS, norms_kernel); }
static void step_chunk(void *u, size_t i) { gsi_run_chunk(u, i, GSI_WEIGHTS, step_kernel); }

void gsi_adafactor_apply(gsi_update *u)
{
    gs_optim *o = u->optim;
    const gs_optim_config *c = &o->config;
    const gs_parallel *parallel = &o->ctx->parallel;
    for (size_t t = 0; t < o->n; t++) {
        const double rest = pow((double)o->own[t].steps + 1, -c->factor_decay);
        o->own[t].beta2 = gsi_setting(1 - rest);
        o->own[t].rest2 = gsi_setting(rest);
    }
    u->factor = (gsi_factor){gsi_setting(u->unscale), u->limit, c->factor_eps, 0, 1};
    u->adam = (gsi_adam){.unscale = gsi_setting(u->unscale),
                         .limit = u->limit,
                         .rest1 = 1,
                         .root = 1,
                         .unbias = 1,
                         .eps = gsi_setting(sqrt(c->factor_eps)),
                         .retain = 1};

    parallel->run(parallel->user, o->factor.n_tiles, squares_tile, u);
    for (size_t t = 0; t < o->n; t++)
        if (o->factor.tiles[t].down > 0 && gsi_has_grad(o, t))
            update_factors(u, t);
    gsi_for_chunks(u, norms_chunk);
    for (size_t t = 0; t < o->n; t++) {
        const gsi_norms norms = gsi_fold_norms(o, t);
        const double count = (double)(o->data[t].count ? o->data[t].count : 1);
        const double size = sqrt(norms.weight / count), rms = sqrt(norms.direction / count);
        o->alpha[t] =
            gsi_setting(gsi_lr_of(u, t) * (size > c->factor_least ? size : c->factor_least));
        o->factor.shrink[t] = gsi_setting(rms > c->factor_clip ? c->factor_clip / rms : 1);
    }
    gsi_for_chunks(u, step_chunk);
}

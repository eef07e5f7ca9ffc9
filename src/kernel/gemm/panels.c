/* One row times a b that is kept in panels [n / width][k][width]: memory is read from one end to
 * the other, which the hardware's prefetcher follows further ahead than software can. The bits are
 * those of the same product in any other way.
 *
 * A panel is WIDE micro-panels wide, because the micro-kernel takes so many of one row at once. */
#include "kernel/context.h"
#include "kernel/fpenv.h"
#include "kernel/gemm/gemm.h"

enum {
    WIDE = 2,
    AT_ONCE = 2 /* panels: some 200 KB of half types, so that threads end together */
};

/* That of f32 takes operands of any types. */
static const gsi_gemm_isa *isa_of(const gs_context *ctx)
{
    return ctx->kernels.gemm[GS_F32][GS_F32];
}

size_t gsi_panel_width(const gs_context *ctx)
{
    const gsi_gemm_isa *isa = isa_of(ctx);
    return isa->skinny_micro ? WIDE * isa->nr : 0;
}

typedef struct panel_job {
    const gsi_gemm_isa *isa;
    const gs_gemm *g;
    size_t width;
    const float *a;    /* [k] */
    const float *bias; /* [n], NULL: none */
} panel_job;

/* The panel of column j and on. */
static void multiply_panel(const panel_job *r, size_t j)
{
    const gsi_gemm_isa *isa = r->isa;
    const gs_gemm *g = r->g;
    _Alignas(GSI_ALIGN) float sums[WIDE * GSI_MICRO];
    for (size_t k0 = 0; k0 < g->k; k0 += GSI_KC) {
        const gsi_skinny x = {.sums = sums,
                              .before = k0 > 0 ? sums : NULL,
                              .a = r->a + k0,
                              .b = gsi_at(g->b.data, g->b.dtype, j * g->k + k0 * r->width),
                              .b_stride = r->width,
                              .m = 1,
                              .n = r->width,
                              .k = gsi_min_size(g->k - k0, GSI_KC)};
        isa->skinny_micro(&x, g->b.dtype, false);
    }
    const size_t end = gsi_min_size(j + r->width, g->n);
    for (const float *s = sums; j < end; j += isa->nr, s += isa->mr * isa->nr) {
        const gsi_epilogue e = {.dtype = g->c.dtype,
                                .stride = g->c.stride,
                                .column = r->bias ? r->bias + j : NULL,
                                .limits = gsi_limits_of(g->c.dtype)};
        isa->epilogue((char *)g->c.data + j * gsi_size_of(g->c.dtype), s, 1,
                      gsi_min_size(end - j, isa->nr), &e);
    }
}

static void multiply_panels(void *arg, size_t i)
{
    const panel_job *r = arg;
    const size_t step = AT_ONCE * r->width, end = gsi_min_size((i + 1) * step, r->g->n);
    const uint64_t env = gsi_fpenv_enter();
    for (size_t j = i * step; j < end; j += r->width)
        multiply_panel(r, j);
    gsi_fpenv_leave(env);
}

gs_status gsi_gemm_panels(gs_context *ctx, const gs_gemm *g)
{
    const gsi_gemm_isa *isa = isa_of(ctx);
    const gsi_mark mark = gsi_arena_mark(&ctx->scratch);
    const size_t width = gsi_panel_width(ctx), whole = gsi_ceil_div(g->n, width) * width;
    float *const a = gsi_arena_new(&ctx->scratch, g->k, sizeof *a);
    float *const bias = gsi_arena_new(&ctx->scratch, whole, sizeof *bias);
    panel_job r = {isa, g, width, a, g->bias ? bias : NULL};
    if (a && bias) {
        isa->copy(a, 0, g->a.data, 0, g->a.dtype, 1, g->k, g->k);
        if (g->bias)
            isa->copy(bias, 0, g->bias, 0, g->bias_dtype, 1, g->n, whole);
        ctx->parallel.run(ctx->parallel.user, gsi_ceil_div(whole, AT_ONCE * width), multiply_panels,
                          &r);
    }
    gsi_arena_reset(&ctx->scratch, mark);
    return a && bias
               ? GS_OK
               : gsi_fail(&ctx->error, GS_ENOMEM, "gemm: no memory for %zu elements", g->k + whole);
}

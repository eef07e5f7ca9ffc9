/* The definition of gs_gemm_run, as plain loops. What the others compute is this, bit for bit. */
#include "kernel/gemm/gemm.h"
#include "num/fma.h"

#include <math.h>

static float read_float(const void *data, gs_dtype type, size_t i)
{
    return gsi_float(gsi_element(data, type, i));
}

static void write_float(void *data, gs_dtype type, size_t i, float x)
{
    void *p = (char *)data + i * gsi_size_of(type);
    const uint16_t code = type == GS_F16 ? gs_f32_to_f16(x) : gs_f32_to_bf16(x);
    memcpy(p, type == GS_F32 ? (const void *)&x : &code, gsi_size_of(type));
}

/* The index on an axis of `length` that row position y reads at tap ky. */
static bool tap_index(size_t *out, size_t y, size_t ky, size_t length, const gs_im2col *p)
{
    const size_t at = p->dgrad ? y + p->pad : y * p->stride + ky;
    const size_t less = p->dgrad ? ky : p->pad;
    if (at < less || (p->dgrad && (at - less) % p->stride != 0))
        return false;
    *out = p->dgrad ? (at - less) / p->stride : at - less;
    return *out < length;
}

static float read_im2col(const gs_matrix *x, size_t z, size_t row, size_t column)
{
    const gs_im2col *p = x->im2col;
    const size_t image = row / (p->rows_h * p->rows_w);
    const size_t y = row / p->rows_w % p->rows_h, ky = column / (p->kw * p->c);
    const size_t col = row % p->rows_w, kx = column / p->c % p->kw;
    size_t iy, ix;
    if (!tap_index(&iy, y, ky, p->h, p) || !tap_index(&ix, col, kx, p->w, p))
        return 0;
    const size_t at = ((image * p->h + iy) * p->w + ix) * p->c + column % p->c;
    return read_float(x->data, x->dtype, z * x->batch_stride + at);
}

/* Element (row, column) of what is multiplied. */
static float read_matrix(const gs_matrix *x, size_t z, size_t row, size_t column)
{
    if (x->im2col)
        return read_im2col(x, z, row, column);
    const size_t r = x->transposed ? column : row, c = x->transposed ? row : column;
    const size_t begin =
        x->group ? r / x->group * x->group_stride + r % x->group * x->stride : r * x->stride;
    return read_float(x->data, x->dtype, z * x->batch_stride + begin + c);
}

static float sum_of_block(const gs_gemm *g, size_t z, size_t i, size_t j, size_t begin, size_t end)
{
    float sum = 0;
    for (size_t k = begin; k < end; k++)
        sum = gsi_fma(read_matrix(&g->a, z, i, k), read_matrix(&g->b, z, k, j), sum);
    return sum;
}

static float element(const gs_gemm *g, size_t z, size_t i, size_t j, size_t at)
{
    float sum = 0;
    for (size_t k = 0; k < g->k; k += GSI_KC) {
        const float block = sum_of_block(g, z, i, j, k, k + GSI_KC < g->k ? k + GSI_KC : g->k);
        sum = k == 0 ? block : sum + block;
    }
    if (g->bias)
        sum += read_float(g->bias, g->bias_dtype, g->bias_per_row ? i : j);
    if (g->beta != 0)
        sum = gsi_fma(g->beta, read_float(g->c.data, g->c.dtype, at), sum);
    return gsi_magnitude(gsi_bits(sum)) > GSI_F32_INF ? gsi_float(GSI_F32_INF | 0x400000) : sum;
}

/* The type of c decides what is subnormal and what underflowed to zero. */
static void count(gs_stats *stats, float sum, float written, const gs_format *f)
{
    const double size = fabs((double)written);
    stats->elements++;
    stats->zero += sum == 0;
    stats->underflow += sum != 0 && written == 0;
    stats->subnormal += size > 0 && size < f->min_normal;
    stats->inf += size > f->max;
    stats->nan += written != written;
    if (size <= f->max && size > (double)stats->amax)
        stats->amax = (float)size;
}

void gsi_gemm_ref(const gs_gemm *g)
{
    for (size_t z = 0; z < g->batch; z++)
        for (size_t i = 0; i < g->m; i++)
            for (size_t j = 0; j < g->n; j++) {
                const size_t at = z * g->c.batch_stride + i * g->c.stride + j;
                const float sum = element(g, z, i, j, at);
                write_float(g->c.data, g->c.dtype, at, sum);
                if (g->stats)
                    count(g->stats, sum, read_float(g->c.data, g->c.dtype, at),
                          gs_dtype_format(g->c.dtype));
            }
}

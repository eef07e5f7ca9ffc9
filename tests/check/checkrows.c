/* checkrows: every variant of every row kernel against the reference, bit for bit.
 *
 *     checkrows [--seed N] [-b] [SUBSTRING]
 *
 * Rows of 0 to 130 elements and random ones; every type for every argument; every alignment of an
 * element; arrays that begin just after or end just before an unmapped page; hostile values; in
 * place and out of place; with counts and without; all bytes around the arrays must stay. A new
 * row of GS_ROW_KERNELS of a family known here is tested with no line written. -b times the
 * variants on arrays in the second-level cache. */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS */

#include "levels.h"
#include "test.h"

#include "kernel/fpenv.h"
#include "reference.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* ---- random numbers and hostile values ---- */

static uint64_t seed = 1, drawn;

static uint32_t draw(void) { return gs_random_u32(seed, drawn++); }
static uint32_t below(uint32_t n) { return (uint32_t)((uint64_t)draw() * n >> 32); }

/* f32 bits: where rounding, flushing, testing, exp and quantisation change their mind. */
static const uint32_t edges[] = {
    0x00000000, 0x80000000, 0x00000001, 0x80000001, 0x007FFFFF, 0x00800000, 0x00008000, 0x33000000,
    0x33000001, 0x32FFFFFF, 0x33800000, 0x33C00000, 0x387FDFFF, 0x387FE000, 0x387FE001, 0x38800000,
    0x477FE000, 0x477FEFFF, 0x477FF000, 0x477FF001, 0x47800000, 0x7F7F0000, 0x7F7F7FFF, 0x7F7F8000,
    0x7F7FFFFF, 0xFF7FFFFF, 0x7F800000, 0xFF800000, 0x7F800001, 0x7FC00000, 0xFFC00000, 0x3F800000,
    0xBF800000, 0x42B17217, 0x42B17218, 0xC2AEAC4F, 0xC2AEAC50, 0x41200000, 0xC1200000, 0x3F200000,
    0x3F1FFFFF, 0x40800000, 0x3F000000, 0xBF000000, 0x3F808000, 0x3F801000, 0xFF800001, 0x7F802000,
};

/* How an array is filled: numbers of a net, any bits, edges, or tame with one offender. */
typedef enum fill_kind { TAME, BITS, EDGES, ONE_BAD, FILLS } fill_kind;

static uint32_t any_f32(fill_kind kind)
{
    if (kind == BITS)
        return draw();
    if (kind == EDGES)
        return edges[below(GSI_COUNT(edges))];
    /* 2^-20 to 2^4, and now and then a zero */
    return below(16) == 0 ? 0 : (draw() & 0x807FFFFF) | (107 + below(24)) << 23;
}

static size_t size_of(gs_dtype type) { return gs_dtype_format(type)->bytes; }

static void fill(void *data, size_t n, gs_dtype type, fill_kind kind)
{
    const size_t bad = kind == ONE_BAD && n ? below((uint32_t)n) : n;
    for (size_t i = 0; i < n; i++) {
        const uint32_t u = any_f32(i == bad ? EDGES : kind);
        if (type == GS_F32)
            ((uint32_t *)data)[i] = u;
        else if (kind == BITS)
            ((uint16_t *)data)[i] = (uint16_t)u;
        else
            ((uint16_t *)data)[i] = (uint16_t)gsi_narrow(
                u, type == GS_F16 ? GSI_ROW_F16 : GSI_ROW_BF16, GSI_NEAREST, false);
    }
}

/* ---- arrays between unmapped pages, each twice: for the reference and for the variant ---- */

enum { ROOM = 1 << 20, MARGIN = 128, ARRAYS = 9, LONGEST = 5000 };
enum { WANT, GOT, SIDES };

typedef struct array {
    gs_dtype type;
    size_t at, n; /* bytes into the room; elements */
} array;

static unsigned char *rooms[ARRAYS][SIDES];

static unsigned char *new_room(void)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    unsigned char *p = mmap(NULL, ROOM + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED || mprotect(p + page, ROOM, PROT_READ | PROT_WRITE) != 0) {
        perror("checkrows: mmap");
        exit(1);
    }
    return p + page;
}

/* The trial that is set up: sizes, types, arrays by number. */
static struct trial {
    fill_kind kind;
    size_t n, rows, cols, stride, first;
    bool fixed; /* timing: all arrays of one type, none in place */
    gs_dtype fixed_type;
    array a[ARRAYS];
    bool used[ARRAYS], counted;
    gsi_counts counts[SIDES];
    float number;
    gsi_dropout dropout;
    gsi_quant quant;
    gsi_pool2d pool;
    gsi_rotary rotary;
    size_t lines;
    size_t images;
} t;

static gs_dtype any_type(void)
{
    static const gs_dtype types[] = {GS_F32, GS_F16, GS_BF16};
    return t.fixed ? t.fixed_type : types[below(3)];
}

static void *at(int k, int side) { return rooms[k][side] + t.a[k].at; }
static gsi_in in(int k, int side) { return (gsi_in){at(k, side), t.a[k].type}; }

static gsi_out out(int k, int side)
{
    return (gsi_out){at(k, side), t.a[k].type, t.counted ? &t.counts[side] : NULL};
}

/* The bytes of array k and MARGIN around it, inside the room. */
static void span(int k, size_t *first, size_t *end)
{
    const array *a = &t.a[k];
    const size_t last = a->at + a->n * size_of(a->type);
    *first = a->at < MARGIN ? 0 : a->at - MARGIN;
    *end = ROOM - last < MARGIN ? ROOM : last + MARGIN;
}

/* Array k: n elements at the start of its room, at the end or somewhere. */
static void place(int k, size_t n, gs_dtype type)
{
    const size_t bytes = n * size_of(type), spare = ROOM - bytes;
    const size_t where[] = {0, spare, below((uint32_t)(spare / size_of(type)) + 1) * size_of(type)};
    t.a[k] = (array){type, where[t.fixed ? 0 : below(3)], n};
    t.used[k] = true;
    size_t first, end;
    span(k, &first, &end);
    for (size_t i = first; i < end; i++)
        rooms[k][WANT][i] = (unsigned char)(i * 37 + 11);
}

static void twin(int k)
{
    size_t first, end;
    span(k, &first, &end);
    memcpy(rooms[k][GOT] + first, rooms[k][WANT] + first, end - first);
}

static void given(int k, size_t n, gs_dtype type, fill_kind kind)
{
    place(k, n, type);
    fill(at(k, WANT), n, type, kind);
    twin(k);
}

static void source(int k, size_t n) { given(k, n, any_type(), t.kind); }
static void wanted(int k, size_t n, gs_dtype type)
{
    place(k, n, type);
    twin(k);
}

/* A destination: sometimes source j itself, which the caller then names by the number returned. */
static int over(int k, int j, size_t n)
{
    if (!t.fixed && below(3) == 0)
        return j;
    wanted(k, n, any_type());
    return k;
}

static void indices(int k, size_t n, uint32_t limit, bool ignore)
{
    place(k, n, GS_F32);
    for (size_t i = 0; i < n; i++)
        ((int32_t *)at(k, WANT))[i] =
            ignore && below(4) == 0 ? -(int32_t)below(100) - 1 : (int32_t)below(limit);
    twin(k);
}

static int dst; /* of the trial */

/* ---- families: what they take, and a call of it ---- */

typedef void any_fn(void);

static void setup_unary(void)
{
    source(0, t.n);
    dst = over(1, 0, t.n);
}

static uint32_t call_unary(any_fn *fn, int s)
{
    return ((gsi_unary_fn *)fn)(out(dst, s), in(0, s), t.n);
}

static void setup_unary_backward(void)
{
    source(0, t.n);
    source(1, t.n);
    dst = over(2, (int)below(2), t.n);
}

static uint32_t call_unary_backward(any_fn *fn, int s)
{
    return ((gsi_unary_backward_fn *)fn)(out(dst, s), in(0, s), in(1, s), t.n);
}

static void setup_binary(void) { setup_unary_backward(); }

static uint32_t call_binary(any_fn *fn, int s)
{
    return ((gsi_binary_fn *)fn)(out(dst, s), in(0, s), in(1, s), t.n);
}

static void setup_difference(void)
{
    setup_binary();
    t.number = gsi_float(any_f32(TAME));
}

static uint32_t call_difference(any_fn *fn, int s)
{
    return ((gsi_difference_fn *)fn)(out(dst, s), in(0, s), in(1, s), t.n, t.number);
}

static void setup_square_error(void)
{
    source(0, t.n);
    source(1, t.n);
    wanted(2, 1, GS_F32);
}

static uint32_t call_square_error(any_fn *fn, int s)
{
    *(float *)at(2, s) = ((gsi_square_error_fn *)fn)(in(0, s), in(1, s), t.n);
    return 0;
}

static void setup_broadcast(void)
{
    source(0, t.rows * t.cols);
    source(1, t.cols);
    dst = over(2, 0, t.rows * t.cols);
}

static uint32_t call_broadcast(any_fn *fn, int s)
{
    return ((gsi_broadcast_fn *)fn)(out(dst, s), in(0, s), in(1, s), t.rows, t.cols);
}

static size_t strided(void) { return t.rows ? (t.rows - 1) * t.stride + t.cols : 0; }

static void setup_colsum(void)
{
    source(0, strided());
    source(1, strided());
    wanted(2, t.cols, GS_F32);
    t.number = (float)(t.fixed ? 0 : below(2));
}

static uint32_t call_colsum(any_fn *fn, int s)
{
    const gsi_in none = {NULL, GS_F32};
    ((gsi_colsum_fn *)fn)(at(2, s), in(0, s), t.number > 0 ? in(1, s) : none, t.rows, t.cols,
                          t.stride);
    return 0;
}

static void setup_layernorm(void)
{
    source(0, t.rows * t.cols);
    source(1, t.cols);
    source(2, t.cols);
    wanted(3, t.rows, GS_F32);
    wanted(4, t.rows, GS_F32);
    dst = over(5, 0, t.rows * t.cols);
}

static uint32_t call_layernorm(any_fn *fn, int s)
{
    return ((gsi_layernorm_fn *)fn)(out(dst, s), at(3, s), at(4, s), in(0, s), in(1, s), in(2, s),
                                    t.rows, t.cols, 1e-5f);
}

static void setup_layernorm_backward(void)
{
    source(0, t.rows * t.cols);
    source(1, t.rows * t.cols);
    source(2, t.cols);
    given(3, t.rows, GS_F32, t.kind);
    given(4, t.rows, GS_F32, t.kind);
    given(5, t.cols, GS_F32, TAME);
    given(6, t.cols, GS_F32, TAME);
    dst = over(7, (int)below(2), t.rows * t.cols);
}

static uint32_t call_layernorm_backward(any_fn *fn, int s)
{
    return ((gsi_layernorm_backward_fn *)fn)(out(dst, s), at(5, s), at(6, s), in(0, s), in(1, s),
                                             at(3, s), at(4, s), in(2, s), t.rows, t.cols);
}

static void setup_rmsnorm(void)
{
    source(0, t.rows * t.cols);
    source(1, t.cols);
    wanted(2, t.rows, GS_F32);
    dst = over(3, 0, t.rows * t.cols);
}

static uint32_t call_rmsnorm(any_fn *fn, int s)
{
    return ((gsi_rmsnorm_fn *)fn)(out(dst, s), at(2, s), in(0, s), in(1, s), t.rows, t.cols, 1e-5f);
}

static void setup_rmsnorm_backward(void)
{
    source(0, t.rows * t.cols);
    source(1, t.rows * t.cols);
    source(2, t.cols);
    given(3, t.rows, GS_F32, t.kind);
    given(4, t.cols, GS_F32, TAME);
    dst = over(5, (int)below(2), t.rows * t.cols);
}

static uint32_t call_rmsnorm_backward(any_fn *fn, int s)
{
    return ((gsi_rmsnorm_backward_fn *)fn)(out(dst, s), at(4, s), in(0, s), in(1, s), at(3, s),
                                           in(2, s), t.rows, t.cols);
}

/* Heads of up to 140 columns, and some behind them. */
static void setup_rotary(void)
{
    gsi_rotary *r = &t.rotary;
    *r = (gsi_rotary){.heads = 1 + below(3), .d = 2 * (1 + t.n % 70), .time = 1 + below(4)};
    r->first = below(3);
    r->inverse = below(2);
    r->cols = r->heads * r->d + below(40);
    if (t.fixed)
        *r = (gsi_rotary){.heads = 12, .d = 64, .time = 16, .cols = 12 * 64};
    t.lines = t.fixed ? 16 : below(6);
    t.first = t.fixed ? 0 : below(3);
    source(0, (t.first + t.lines) * r->cols);
    given(1, (r->first + r->time) * r->d, GS_F32, t.kind);
    dst = over(2, 0, (t.first + t.lines) * r->cols);
}

static uint32_t call_rotary(any_fn *fn, int s)
{
    gsi_rotary how = t.rotary;
    how.table = at(1, s);
    return ((gsi_rotary_fn *)fn)(out(dst, s), in(0, s), &how, t.first, t.lines);
}

static void setup_softmax(void)
{
    source(0, t.rows * t.cols);
    dst = over(1, 0, t.rows * t.cols);
}

static uint32_t call_softmax(any_fn *fn, int s)
{
    return ((gsi_softmax_fn *)fn)(out(dst, s), in(0, s), t.rows, t.cols);
}

static void setup_softmax_backward(void)
{
    source(0, t.rows * t.cols);
    source(1, t.rows * t.cols);
    dst = over(2, (int)below(2), t.rows * t.cols);
}

static uint32_t call_softmax_backward(any_fn *fn, int s)
{
    return ((gsi_softmax_backward_fn *)fn)(out(dst, s), in(0, s), in(1, s), t.rows, t.cols);
}

static void setup_attend(void)
{
    t.first = below(3) * below(200);
    given(0, t.rows * t.cols, GS_F32, t.kind);
    wanted(1, t.rows * t.cols, any_type());
    dst = 1;
}

static uint32_t call_attend(any_fn *fn, int s)
{
    return ((gsi_attend_fn *)fn)(out(1, s), at(0, s), t.rows, t.cols, t.first, 0.125f);
}

static void setup_attend_backward(void)
{
    t.first = below(3) * below(200);
    given(0, t.rows * t.cols, GS_F32, t.kind);
    source(1, t.rows * t.cols);
    dst = over(2, 1, t.rows * t.cols);
}

static uint32_t call_attend_backward(any_fn *fn, int s)
{
    return ((gsi_attend_backward_fn *)fn)(out(dst, s), at(0, s), in(1, s), t.rows, t.cols, t.first,
                                          0.125f);
}

static void setup_logsumexp(void)
{
    source(0, t.rows * t.cols);
    wanted(1, t.rows, GS_F32);
}

static uint32_t call_logsumexp(any_fn *fn, int s)
{
    ((gsi_logsumexp_fn *)fn)(at(1, s), in(0, s), t.rows, t.cols);
    return 0;
}

static void setup_cross_entropy(void)
{
    t.cols += t.cols == 0;
    source(0, t.rows * t.cols);
    indices(1, t.rows, (uint32_t)t.cols, true);
    wanted(2, t.rows, GS_F32);
    wanted(3, t.rows, GS_F32);
}

static uint32_t call_cross_entropy(any_fn *fn, int s)
{
    ((gsi_cross_entropy_fn *)fn)(at(2, s), at(3, s), in(0, s), at(1, s), t.rows, t.cols);
    return 0;
}

static void setup_cross_entropy_backward(void)
{
    t.cols += t.cols == 0;
    source(0, t.rows * t.cols);
    indices(1, t.rows, (uint32_t)t.cols, true);
    given(2, t.rows, GS_F32, t.kind);
    dst = over(3, 0, t.rows * t.cols);
    t.number = gsi_float(any_f32(TAME));
}

static uint32_t call_cross_entropy_backward(any_fn *fn, int s)
{
    return ((gsi_cross_entropy_backward_fn *)fn)(out(dst, s), in(0, s), at(1, s), at(2, s),
                                                 t.number, t.rows, t.cols);
}

static void setup_gather(void)
{
    const uint32_t words = 1 + below(20);
    source(0, words * t.cols);
    indices(1, t.rows, words, false);
    wanted(2, t.rows * t.cols, any_type());
    dst = 2;
}

static uint32_t call_gather(any_fn *fn, int s)
{
    return ((gsi_gather_fn *)fn)(out(dst, s), in(0, s), at(1, s), t.rows, t.cols);
}

static void setup_scatter(void)
{
    const uint32_t words = 1 + below(10);
    source(0, strided());
    indices(1, t.rows, words, false);
    given(2, (words - 1) * t.stride + t.cols, GS_F32, TAME);
}

static uint32_t call_scatter(any_fn *fn, int s)
{
    ((gsi_scatter_fn *)fn)(at(2, s), in(0, s), at(1, s), t.rows, t.cols, t.stride);
    return 0;
}

static void setup_dropout(void)
{
    setup_unary();
    const uint64_t group = below(2) ? below(1000) : ((uint64_t)1 << 36) - 2;
    t.dropout = gsi_dropout_of((float)below(17) / 16, (uint64_t)draw() << 32 | draw(),
                               group * GSI_RANDOM_GROUP);
}

static uint32_t call_dropout(any_fn *fn, int s)
{
    return ((gsi_dropout_fn *)fn)(out(dst, s), in(0, s), t.n, &t.dropout);
}

static void setup_fake_quant(void)
{
    setup_unary();
    t.quant = gsi_quant_of(gsi_float(gsi_magnitude(any_f32(TAME))), 2 + (int)below(15), below(2),
                           below(2));
}

static uint32_t call_fake_quant(any_fn *fn, int s)
{
    return ((gsi_fake_quant_fn *)fn)(out(dst, s), in(0, s), t.n, &t.quant);
}

static void setup_fake_quant_backward(void)
{
    setup_fake_quant();
    setup_unary_backward();
}

static uint32_t call_fake_quant_backward(any_fn *fn, int s)
{
    return ((gsi_fake_quant_backward_fn *)fn)(out(dst, s), in(0, s), in(1, s), t.n, &t.quant);
}

/* Bytes, in an array of floats; those it has too many stay as they are */
static void bytes(int k, size_t n)
{
    wanted(k, n / 4 + 1, GS_F32);
    memset(at(k, WANT), 0, n);
    memset(at(k, GOT), 0, n);
}

static void setup_quantize(void)
{
    source(0, t.n);
    bytes(1, t.n);
    t.quant =
        gsi_quant_of(gsi_float(gsi_magnitude(any_f32(TAME))), 2 + (int)below(7), false, below(2));
}

static uint32_t call_quantize(any_fn *fn, int s)
{
    ((gsi_quantize_fn *)fn)(at(1, s), in(0, s), t.n, &t.quant);
    return 0;
}

static void setup_requantize(void)
{
    given(0, strided(), GS_F32, BITS); /* int32_t */
    given(1, t.cols, GS_F32, t.kind);
    source(2, t.cols);
    wanted(3, strided(), any_type());
    dst = 3;
    t.first = below(2); /* with a bias or without */
}

static uint32_t call_requantize(any_fn *fn, int s)
{
    const gsi_in none = {NULL, GS_F32};
    return ((gsi_requantize_fn *)fn)(out(dst, s), t.stride, at(0, s), t.stride, at(1, s),
                                     t.first ? in(2, s) : none, t.rows, t.cols);
}

static void setup_moments(void)
{
    t.rows += t.rows == 0;
    source(0, t.rows * t.cols);
    wanted(1, t.cols, GS_F32);
    wanted(2, t.cols, GS_F32);
}

static uint32_t call_moments(any_fn *fn, int s)
{
    ((gsi_moments_fn *)fn)(at(1, s), at(2, s), in(0, s), t.rows, t.cols);
    return 0;
}

static void setup_batchnorm(void)
{
    source(0, t.rows * t.cols);
    given(1, t.cols, GS_F32, t.kind);
    given(2, t.cols, GS_F32, t.kind);
    source(3, t.cols);
    source(4, t.cols);
    dst = over(5, 0, t.rows * t.cols);
}

static uint32_t call_batchnorm(any_fn *fn, int s)
{
    return ((gsi_batchnorm_fn *)fn)(out(dst, s), in(0, s), at(1, s), at(2, s), in(3, s), in(4, s),
                                    t.rows, t.cols);
}

static void setup_batchnorm_sums(void)
{
    source(0, t.rows * t.cols);
    source(1, t.rows * t.cols);
    given(2, t.cols, GS_F32, t.kind);
    given(3, t.cols, GS_F32, t.kind);
    wanted(4, t.cols, GS_F32);
    wanted(5, t.cols, GS_F32);
}

static uint32_t call_batchnorm_sums(any_fn *fn, int s)
{
    ((gsi_batchnorm_sums_fn *)fn)(at(4, s), at(5, s), in(0, s), in(1, s), at(2, s), at(3, s),
                                  t.rows, t.cols);
    return 0;
}

static void setup_batchnorm_backward(void)
{
    setup_batchnorm_sums();
    given(4, t.cols, GS_F32, t.kind);
    given(5, t.cols, GS_F32, t.kind);
    source(6, t.cols);
    dst = over(7, (int)below(2), t.rows * t.cols);
}

static uint32_t call_batchnorm_backward(any_fn *fn, int s)
{
    return ((gsi_batchnorm_backward_fn *)fn)(out(dst, s), in(0, s), in(1, s), at(2, s), at(3, s),
                                             in(6, s), at(4, s), at(5, s), t.rows + 5, t.rows,
                                             t.cols);
}

/* Two images of at most 9 x 9; channels as the trial says. */
static void any_pool(void)
{
    gsi_pool2d *p = &t.pool;
    p->channels = 1 + t.n % 140;
    p->kh = 1 + below(3);
    p->kw = 1 + below(3);
    p->stride = 1 + below(3);
    p->pad = below((uint32_t)(p->kh < p->kw ? p->kh : p->kw) / 2 + 1);
    p->height = p->kh + below(6);
    p->width = p->kw + below(6);
    t.images = 1 + below(2);
    if (t.fixed) {
        *p = (gsi_pool2d){.height = 32, .width = 32, .channels = 64, .kh = 2, .kw = 2, .stride = 2};
        t.images = 1;
    }
    p->out_height = 1 + (p->height + 2 * p->pad - p->kh) / p->stride;
    p->out_width = 1 + (p->width + 2 * p->pad - p->kw) / p->stride;
}

static size_t in_size(void) { return t.images * t.pool.height * t.pool.width * t.pool.channels; }

static size_t out_size(void)
{
    return t.images * t.pool.out_height * t.pool.out_width * t.pool.channels;
}

static void setup_avgpool(void)
{
    any_pool();
    source(0, in_size());
    wanted(1, out_size(), any_type());
}

static void setup_avgpool_backward(void)
{
    any_pool();
    source(0, out_size());
    wanted(1, in_size(), any_type());
}

static void setup_maxpool(void)
{
    setup_avgpool();
    bytes(2, out_size());
}

static void setup_maxpool_backward(void)
{
    setup_avgpool_backward();
    bytes(2, out_size());
    for (size_t i = 0; i < out_size(); i++)
        ((uint8_t *)at(2, WANT))[i] = (uint8_t)below((uint32_t)(t.pool.kh * t.pool.kw));
    twin(2);
}

static uint32_t call_maxpool(any_fn *fn, int s)
{
    return ((gsi_maxpool_fn *)fn)(out(1, s), at(2, s), in(0, s), &t.pool, 0,
                                  t.images * t.pool.out_height);
}

static uint32_t call_maxpool_backward(any_fn *fn, int s)
{
    return ((gsi_maxpool_backward_fn *)fn)(out(1, s), in(0, s), at(2, s), &t.pool, 0,
                                           t.images * t.pool.height);
}

static uint32_t call_avgpool(any_fn *fn, int s)
{
    return ((gsi_avgpool_fn *)fn)(out(1, s), in(0, s), &t.pool, 0, t.images * t.pool.out_height);
}

static uint32_t call_avgpool_backward(any_fn *fn, int s)
{
    return ((gsi_avgpool_backward_fn *)fn)(out(1, s), in(0, s), &t.pool, 0,
                                           t.images * t.pool.height);
}

typedef struct row {
    const char *name;
    void (*setup)(void);
    uint32_t (*call)(any_fn *fn, int side);
    size_t offset; /* in gsi_rows */
} row;

static const row list[] = {
#define X(name, family) {#name, setup_##family, call_##family, offsetof(gsi_rows, name)},
    GS_ROW_KERNELS(X)
#undef X
};

static any_fn *pick(const gsi_rows *k, const row *r)
{
    any_fn *fn;
    memcpy(&fn, (const char *)k + r->offset, sizeof fn);
    return fn;
}

/* ---- checking ---- */

/* Makes all NaN of an array one: which it is, is not defined. */
static void one_nan(int k, int side)
{
    const gs_dtype type = t.a[k].type;
    for (size_t i = 0; i < t.a[k].n; i++) {
        if (type == GS_F32) {
            uint32_t *u = (uint32_t *)at(k, side) + i;
            *u = gsi_magnitude(*u) > GSI_F32_INF ? 0x7FC00000 : *u;
        } else {
            uint16_t *u = (uint16_t *)at(k, side) + i;
            const uint16_t inf = type == GS_F16 ? 0x7C00 : 0x7F80;
            *u = (*u & 0x7FFF) > inf ? 0x7FFF : *u;
        }
    }
}

static bool same_counts(void)
{
    const gsi_counts *a = &t.counts[WANT], *b = &t.counts[GOT];
    return a->inf == b->inf && a->nan == b->nan && a->zero == b->zero &&
           a->subnormal == b->subnormal && a->underflow == b->underflow && a->amax == b->amax &&
           a->first_bad == b->first_bad;
}

static bool same(void)
{
    for (int k = 0; k < ARRAYS; k++) {
        if (!t.used[k])
            continue;
        one_nan(k, WANT);
        one_nan(k, GOT);
        size_t first, end;
        span(k, &first, &end);
        if (memcmp(rooms[k][WANT] + first, rooms[k][GOT] + first, end - first) != 0)
            return false;
        for (size_t i = first; i < end; i++) {
            const bool inside = i >= t.a[k].at && i < t.a[k].at + t.a[k].n * size_of(t.a[k].type);
            if (!inside && rooms[k][WANT][i] != (unsigned char)(i * 37 + 11))
                return false;
        }
    }
    return same_counts();
}

static bool check_row(const row *r, any_fn *ref, any_fn *fn, const char *isa)
{
    for (int trial = 0; trial < 131 * FILLS + 300; trial++) {
        const uint64_t start = drawn;
        memset(&t, 0, sizeof t);
        t.kind = (fill_kind)(trial % FILLS);
        t.n = trial < 131 * FILLS ? (size_t)(trial / FILLS) : below(LONGEST);
        t.rows = below(8) == 0 ? below(70) : below(6);
        t.cols = trial < 131 * FILLS ? t.n : below(LONGEST) / (t.rows + 1);
        t.stride = t.cols + below(3) * below(9);
        t.counted = below(2);
        r->setup();
        const uint32_t want = r->call(ref, WANT), got = r->call(fn, GOT);
        if (want != got || !same()) {
            fprintf(stderr,
                    "FAILED %s_%s: n %zu, %zu x %zu, fill %d, seed %llu, draw %llu: %08x %08x\n",
                    r->name, isa, t.n, t.rows, t.cols, (int)t.kind, (unsigned long long)seed,
                    (unsigned long long)start, want, got);
            return false;
        }
    }
    return true;
}

/* ---- timing ---- */

/* Nanoseconds for 16 elements, best of many, all arrays of one type. */
static double time_row(const row *r, any_fn *fn, gs_dtype type)
{
    double best = 1e9;
    memset(&t, 0, sizeof t);
    t.fixed = true;
    t.fixed_type = type;
    t.rows = 128;
    t.cols = t.stride = 768;
    t.n = t.rows * t.cols;
    r->setup();
    const double until = gs_clock() + 0.02;
    for (double start = gs_clock(); start < until;) {
        r->call(fn, GOT);
        const double end = gs_clock();
        best = end - start < best ? end - start : best;
        start = end;
    }
    return best * 1e9 / (double)(t.rows * t.cols) * 16;
}

static void print_times(const row *r, any_fn *fn, const char *isa)
{
    printf("%-24s %-7s", r->name, isa);
    for (gs_dtype type = GS_F32; type <= GS_BF16; type++)
        printf("  %s %6.2f", gs_dtype_format(type)->name, time_row(r, fn, type));
    printf("  ns/16\n");
}

int main(int argc, char **argv)
{
    bool bench = false;
    const char *only = "";
    for (int a = 1; a < argc; a++) {
        if (strcmp(argv[a], "-b") == 0)
            bench = true;
        else if (strcmp(argv[a], "--seed") == 0 && a + 1 < argc)
            seed = strtoull(argv[++a], NULL, 0);
        else
            only = argv[a];
    }
    size_t named = 0;
    for (size_t i = 0; i < GSI_COUNT(list); i++)
        named += strstr(list[i].name, only) != NULL;
    if (named == 0) {
        fprintf(stderr, "FAILED %s: no kernel has it in its name\n", only);
        return test_end(0, 1);
    }
    for (int k = 0; k < ARRAYS; k++)
        for (int side = 0; side < SIDES; side++)
            rooms[k][side] = new_room();

    const uint64_t env = gsi_fpenv_enter();
    const unsigned levels = cpu_levels();
    int passed = 0, failed = 0;
    for (unsigned cpu = 0; cpu < 1u << GS_CPU_COUNT; cpu = cpu ? cpu << 1 : 1) {
        const char *isa = cpu ? gs_cpu_name(cpu) : "ref";
        gsi_kernels k;
        if (cpu && !(levels & cpu))
            continue;
        gsi_kernels_init(&k, cpu);
        for (size_t i = 0; i < GSI_COUNT(list); i++) {
            const row *r = &list[i];
            any_fn *fn = pick(&k.rows, r), *ref = pick(&reference.rows, r);
            if (!strstr(r->name, only) || (cpu && fn == ref))
                continue;
            /* the reference against itself: what it must not touch, and that it ends the same */
            const bool ok = check_row(r, ref, fn, isa);
            passed += ok;
            failed += !ok;
            if (bench)
                print_times(r, fn, isa);
        }
    }
    gsi_fpenv_leave(env);
    printf("seed %llu\n", (unsigned long long)seed);
    return test_end(passed, failed);
}

/* Running a kernel. (1) A register holds its bits, zero-extended; a NaN that arithmetic makes is
 * NVIDIA's. (2) `stamp` counts stretches between barriers over all blocks of a launch; who touched
 * what in which stretch is in the shadow, 2 bytes at a time: no element is smaller. */
#include "ptx.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- races ---- */

enum { MANY = 0xFFFF, GRAIN = 2 };

typedef struct touch {
    uint32_t launch, block, stamp;
    uint16_t thread, atomic;
} touch;

typedef struct ptx_shadow {
    touch write, read;
} ptx_shadow;

static uint32_t launches, stamps;

void ptx_memory_free(ptx_memory *memory)
{
    free(memory->shadow);
    memory->shadow = NULL;
}

static int conflict(const touch *a, const touch *b)
{
    if (a->launch != b->launch || (a->atomic && b->atomic))
        return 0;
    return a->block != b->block || (a->stamp == b->stamp && a->thread != b->thread);
}

static int touched(ptx_shadow *s, const touch *me, int writes)
{
    if (conflict(&s->write, me) || (writes && conflict(&s->read, me)))
        return 1;
    if (writes) {
        s->write = *me;
    } else {
        touch next = *me;
        if (s->read.launch == me->launch && s->read.block != me->block)
            next.block = UINT32_MAX; /* of several blocks: any write is a race */
        else if (s->read.launch == me->launch && s->read.stamp == me->stamp &&
                 s->read.thread != me->thread)
            next.thread = MANY;
        s->read = next;
    }
    return 0;
}

/* ---- a block ---- */

typedef struct thread {
    int pc, done;
    uint64_t *r;
    unsigned char *local;
} thread;

typedef struct run {
    const ptx_kernel *kernel;
    const uint64_t *arguments;
    ptx_memory *memory, *last; /* last: where the last access was */
    size_t n;
    unsigned char *shared;
    ptx_shadow *shadow; /* of shared memory */
    unsigned block, grid, threads;
    touch me;
    const char *wrong;
} run;

static float f32(uint64_t u)
{
    const uint32_t v = (uint32_t)u;
    float x;
    memcpy(&x, &v, 4);
    return x;
}

static double f64(uint64_t u)
{
    double x;
    memcpy(&x, &u, 8);
    return x;
}

static uint64_t b32(float x)
{
    uint32_t u;
    memcpy(&u, &x, 4);
    return x != x ? 0x7FFFFFFF : u;
}

static uint64_t b64(double x)
{
    uint64_t u;
    memcpy(&u, &x, 8);
    return x != x ? 0x7FFFFFFFFFFFFFFF : u;
}

static int64_t extend(uint64_t u, int bytes)
{
    return bytes == 8 ? (int64_t)u : bytes == 4 ? (int32_t)u : bytes == 2 ? (int16_t)u : (int8_t)u;
}

static uint64_t trim(uint64_t u, int bytes)
{
    return bytes == 8 ? u : u & ((UINT64_C(1) << 8 * bytes) - 1);
}

static int is_signed(ptx_type t)
{
    return t == PTX_S8 || t == PTX_S16 || t == PTX_S32 || t == PTX_S64;
}

static int is_real(ptx_type t)
{
    return t == PTX_F16 || t == PTX_BF16 || t == PTX_F32 || t == PTX_F64;
}

static uint64_t f16_to_f32(uint32_t h)
{
    const uint32_t mag = h & 0x7FFF, sign = (h >> 15) << 31;
    if (mag > 0x7C00)
        return 0x7FFFFFFF;
    if (mag == 0x7C00)
        return sign | 0x7F800000;
    if (mag >= 0x400)
        return sign | ((mag << 13) + (112u << 23));
    return sign | b32((float)mag * 0x1p-24f);
}

static uint64_t f32_to_f16(uint32_t u)
{
    const uint32_t mag = u & 0x7FFFFFFF, sign = u >> 31 << 15;
    if (mag > 0x7F800000)
        return 0x7FFF;
    if (mag >= 0x477FF000)
        return sign | 0x7C00;
    if (mag >= 0x38800000)
        return sign | ((mag - (112u << 23) + 0xFFF + (mag >> 13 & 1)) >> 13);
    if (mag < 0x33000001)
        return sign;
    const uint32_t shift = 126 - (mag >> 23), x = (mag & 0x7FFFFF) | 0x800000;
    const uint32_t kept = x >> shift, rest = x & ((1u << shift) - 1), half = 1u << (shift - 1);
    return sign | (kept + (rest > half || (rest == half && (kept & 1))));
}

static uint64_t bf16_to_f32(uint32_t h)
{
    return (h & 0x7FFF) > 0x7F80 ? 0x7FFFFFFF : (uint64_t)h << 16;
}

static uint64_t f32_to_bf16(uint32_t u)
{
    return (u & 0x7FFFFFFF) > 0x7F800000 ? 0x7FFF : (u + 0x7FFF + (u >> 16 & 1)) >> 16;
}

/* ---- memory ---- */

static unsigned char *place(run *g, thread *t, const ptx_instruction *i, uint64_t at, int bytes,
                            int writes)
{
    unsigned char *p = NULL;
    ptx_shadow *shadow = NULL;
    if (at % (unsigned)bytes != 0) {
        g->wrong = "a misaligned access";
        return NULL;
    }
    if (i->space == PTX_LOCAL) {
        if (at >= g->kernel->local || at + (unsigned)bytes > g->kernel->local)
            g->wrong = "an access outside of local memory";
        return g->wrong ? NULL : t->local + at;
    }
    if (i->space == PTX_SHARED) {
        if (at >= g->kernel->shared || at + (unsigned)bytes > g->kernel->shared) {
            g->wrong = "an access outside of shared memory";
            return NULL;
        }
        p = g->shared + at;
        shadow = g->shadow + at / GRAIN;
    } else {
        ptx_memory *m = g->last;
        if (!m || at < (uintptr_t)m->base || at + (unsigned)bytes > (uintptr_t)m->base + m->bytes) {
            m = NULL;
            for (size_t k = 0; k < g->n && !m; k++)
                if (at >= (uintptr_t)g->memory[k].base &&
                    at + (unsigned)bytes <= (uintptr_t)g->memory[k].base + g->memory[k].bytes)
                    m = &g->memory[k];
            if (!m) {
                g->wrong = "an access outside of global memory";
                return NULL;
            }
            g->last = m;
        }
        if (!m->shadow)
            m->shadow = calloc(m->bytes / GRAIN + 2, sizeof *m->shadow);
        p = m->base + (at - (uintptr_t)m->base);
        shadow = m->shadow + (at - (uintptr_t)m->base) / GRAIN;
        *(writes ? &m->written : &m->read) += (unsigned)bytes;
    }
    for (int k = 0; k < bytes; k += GRAIN)
        if (touched(shadow + k / GRAIN, &g->me, writes)) {
            g->wrong = "a race: two threads, one of which writes, and no barrier between them";
            return NULL;
        }
    return p;
}

static uint64_t value(const run *g, const thread *t, const ptx_operand *o)
{
    if (o->reg >= 0)
        return t->r[o->reg];
    switch (o->reg) {
    case PTX_TID:
        return g->me.thread;
    case PTX_CTAID:
        return g->block;
    case PTX_NTID:
        return g->threads;
    case PTX_NCTAID:
        return g->grid;
    default:
        return o->number;
    }
}

static uint64_t address(const thread *t, const ptx_operand *o)
{
    return (o->reg >= 0 ? t->r[o->reg] : 0) + o->number;
}

static void load(run *g, thread *t, const ptx_instruction *i)
{
    const int n = ptx_sizes[i->type];
    if (i->space == PTX_PARAM) {
        t->r[i->x[0].reg] = trim(g->arguments[i->x[1].number], n);
        return;
    }
    unsigned char *p = place(g, t, i, address(t, &i->x[i->width]), n * i->width, 0);
    for (int k = 0; p && k < i->width; k++) {
        uint64_t x = 0;
        memcpy(&x, p + k * n, (size_t)n);
        t->r[i->x[k].reg] = is_signed(i->type) ? (uint64_t)extend(x, n) : x;
    }
}

static void store(run *g, thread *t, const ptx_instruction *i)
{
    const int n = ptx_sizes[i->type];
    unsigned char *p = place(g, t, i, address(t, &i->x[0]), n * i->width, 1);
    for (int k = 0; p && k < i->width; k++) {
        const uint64_t x = value(g, t, &i->x[1 + k]);
        memcpy(p + k * n, &x, (size_t)n);
    }
}

static void atomic(run *g, thread *t, const ptx_instruction *i)
{
    const int n = ptx_sizes[i->type];
    const uint64_t b = trim(value(g, t, &i->x[2]), n);
    uint64_t old = 0;
    if (i->type != PTX_U32) {
        g->wrong = "an atomic of a type that is not known";
        return;
    }
    g->me.atomic = 1;
    unsigned char *p = place(g, t, i, address(t, &i->x[1]), n, 1);
    g->me.atomic = 0;
    if (!p)
        return;
    memcpy(&old, p, (size_t)n);
    const uint64_t next = i->atomic == PTX_ATOMIC_ADD   ? old + b
                          : i->atomic == PTX_ATOMIC_MIN ? (b < old ? b : old)
                                                        : (b > old ? b : old);
    memcpy(p, &next, (size_t)n);
    t->r[i->x[0].reg] = old;
}

/* ---- arithmetic ---- */

/* b is the second source of a pair. */
static uint64_t convert(run *g, const ptx_instruction *i, uint64_t a, uint64_t b)
{
    const ptx_type to = i->type, from = i->from;
    const int n = ptx_sizes[to], m = ptx_sizes[from];
    if (!is_real(to) && !is_real(from))
        return trim(is_signed(from) ? (uint64_t)extend(a, m) : trim(a, m), n);
    if (to == PTX_F32 && from == PTX_F16)
        return f16_to_f32((uint32_t)a & 0xFFFF);
    if (to == PTX_F16 && from == PTX_F32 && i->round == PTX_RN)
        return f32_to_f16((uint32_t)a);
    if (to == PTX_F32 && from == PTX_BF16)
        return bf16_to_f32((uint32_t)a & 0xFFFF);
    if (to == PTX_BF16 && from == PTX_F32 && i->round == PTX_RN)
        return f32_to_bf16((uint32_t)a);
    if (to == PTX_F16X2 && from == PTX_F32 && i->round == PTX_RN) /* the first is the high half */
        return f32_to_f16((uint32_t)a) << 16 | f32_to_f16((uint32_t)b);
    if (to == PTX_BF16X2 && from == PTX_F32 && i->round == PTX_RN)
        return f32_to_bf16((uint32_t)a) << 16 | f32_to_bf16((uint32_t)b);
    if (to == PTX_F64 && from == PTX_F32)
        return b64((double)f32(a));
    if (to == PTX_F32 && from == PTX_F64 && i->round == PTX_RN)
        return b32((float)f64(a));
    if (to == PTX_F64 && from == PTX_F64 && i->round == PTX_RZI)
        return b64(trunc(f64(a)));
    if (!is_real(to) && from == PTX_F64 && i->round == PTX_RZI) { /* saturates */
        const double x = trunc(f64(a)), low = is_signed(to) ? -ldexp(1, 8 * n - 1) : 0;
        const double high = ldexp(1, 8 * n - is_signed(to)) - (n < 8 ? 1 : 0);
        const double y = x != x ? 0 : x < low ? low : x > high ? high : x;
        return is_signed(to) ? trim((uint64_t)(int64_t)y, n) : (uint64_t)y;
    }
    if ((to == PTX_F32 || to == PTX_F64) && !is_real(from) && i->round == PTX_RN) {
        const int64_t s = extend(a, m);
        const uint64_t u = trim(a, m);
        if (to == PTX_F32)
            return b32(is_signed(from) ? (float)s : (float)u);
        return b64(is_signed(from) ? (double)s : (double)u);
    }
    g->wrong = "a conversion that is not known";
    return 0;
}

static int compare(ptx_compare c, int less, int equal, int unordered)
{
    switch (c) {
    case PTX_is_eq:
        return equal;
    case PTX_is_ne:
        return !equal && !unordered;
    case PTX_is_lt:
        return less;
    case PTX_is_le:
        return less || equal;
    case PTX_is_gt:
        return !less && !equal && !unordered;
    case PTX_is_ge:
        return !less && !unordered;
    case PTX_is_equ:
        return equal || unordered;
    case PTX_is_neu:
        return !equal;
    case PTX_is_ltu:
        return less || unordered;
    case PTX_is_leu:
        return less || equal || unordered;
    case PTX_is_gtu:
        return !less && !equal;
    case PTX_is_geu:
        return !less;
    case PTX_is_num:
        return !unordered;
    default:
        return unordered;
    }
}

static int test(const ptx_instruction *i, uint64_t a, uint64_t b)
{
    const int n = ptx_sizes[i->type];
    if (i->type == PTX_F32)
        return compare(i->compare, f32(a) < f32(b), f32(a) == f32(b), isunordered(f32(a), f32(b)));
    if (i->type == PTX_F64)
        return compare(i->compare, f64(a) < f64(b), f64(a) == f64(b), isunordered(f64(a), f64(b)));
    if (is_signed(i->type))
        return compare(i->compare, extend(a, n) < extend(b, n), extend(a, n) == extend(b, n), 0);
    return compare(i->compare, trim(a, n) < trim(b, n), trim(a, n) == trim(b, n), 0);
}

/* min and max of f64: the number, where the other is NaN. -0 is less than 0. */
static double extreme(double a, double b, int least)
{
    if (a != a || b != b)
        return a != a ? b : a;
    if (a == b)
        return (signbit(a) != 0) == least ? a : b;
    return (a < b) == least ? a : b;
}

static uint64_t of_f32(run *g, ptx_op op, float a, float b, float c)
{
    switch (op) {
    case PTX_add:
        return b32(a + b);
    case PTX_sub:
        return b32(a - b);
    case PTX_mul:
        return b32(a * b);
    case PTX_div:
        return b32(a / b);
    case PTX_fma:
        return b32(fmaf(a, b, c));
    case PTX_sqrt:
        return b32(sqrtf(a));
    default:
        g->wrong = "an operation on f32 that is not known";
        return 0;
    }
}

static uint64_t of_f64(run *g, ptx_op op, double a, double b, double c)
{
    switch (op) {
    case PTX_add:
        return b64(a + b);
    case PTX_sub:
        return b64(a - b);
    case PTX_mul:
        return b64(a * b);
    case PTX_div:
        return b64(a / b);
    case PTX_fma:
        return b64(fma(a, b, c));
    case PTX_rcp:
        return b64(1 / a);
    case PTX_sqrt:
        return b64(sqrt(a));
    case PTX_min:
        return b64(extreme(a, b, 1));
    case PTX_max:
        return b64(extreme(a, b, 0));
    case PTX_copysign: /* the sign of a, the rest of b */
        return b64(copysign(b, a));
    default:
        g->wrong = "an operation on f64 that is not known";
        return 0;
    }
}

static uint64_t product(run *g, const ptx_instruction *i, uint64_t a, uint64_t b)
{
    const int n = ptx_sizes[i->type], s = is_signed(i->type);
    if (i->part == PTX_LO)
        return trim(a * b, n);
    if (n == 4 && i->part == PTX_WIDE)
        return s ? (uint64_t)(extend(a, n) * extend(b, n)) : trim(a, n) * trim(b, n);
    if (n == 4 && i->part == PTX_HI && !s)
        return trim(a, n) * trim(b, n) >> 32;
    g->wrong = "a product that is not known";
    return 0;
}

static uint64_t of_integers(run *g, const thread *t, const ptx_instruction *i, uint64_t a,
                            uint64_t b, uint64_t c)
{
    const int n = ptx_sizes[i->type], s = is_signed(i->type);
    const uint64_t bits = 8u * (unsigned)n;
    switch (i->op) {
    case PTX_add:
        return trim(a + b, n);
    case PTX_sub:
        return trim(a - b, n);
    case PTX_mul:
        return product(g, i, a, b);
    case PTX_mad: {
        const uint64_t ab = product(g, i, a, b);
        return i->part == PTX_LO ? trim(ab + c, n) : ab + c;
    }
    case PTX_div:
    case PTX_rem:
        if (trim(b, n) == 0 || s) {
            g->wrong = "a division by zero, or of signed integers";
            return 0;
        }
        return i->op == PTX_div ? trim(a, n) / trim(b, n) : trim(a, n) % trim(b, n);
    case PTX_neg:
        return trim(0 - a, n);
    case PTX_abs:
        return trim(extend(a, n) < 0 ? 0 - a : a, n);
    case PTX_min:
    case PTX_max: {
        const int less = s ? extend(a, n) < extend(b, n) : trim(a, n) < trim(b, n);
        return trim((i->op == PTX_min) == less ? a : b, n);
    }
    case PTX_and:
        return a & b;
    case PTX_or:
        return a | b;
    case PTX_xor:
        return a ^ b;
    case PTX_not:
        return i->type == PTX_PRED ? !a : trim(~a, n);
    case PTX_shl:
        b = (uint32_t)b;
        return b >= bits ? 0 : trim(a << b, n);
    case PTX_shr:
        b = (uint32_t)b;
        if (s)
            return trim((uint64_t)(extend(a, n) >> (b >= bits ? bits - 1 : b)), n);
        return b >= bits ? 0 : trim(a, n) >> b;
    case PTX_bfe: {
        const uint64_t at = b & 0xFF, length = c & 0xFF;
        const uint64_t x = at >= bits ? 0 : trim(a, n) >> at;
        return length >= bits ? x : x & ((UINT64_C(1) << length) - 1);
    }
    case PTX_bfi: {
        const uint64_t at = c & 0xFF, length = value(g, t, &i->x[4]) & 0xFF;
        const uint64_t mask = (length >= 64 ? ~UINT64_C(0) : (UINT64_C(1) << length) - 1) << at;
        return trim((b & ~mask) | (a << at & mask), n);
    }
    default:
        g->wrong = "an instruction that is not known";
        return 0;
    }
}

/* {low, high} = x, or x = {low, high}. */
static void move(run *g, thread *t, const ptx_instruction *i)
{
    const int half = 4 * ptx_sizes[i->type]; /* bits */
    if (i->split == 1) {
        const uint64_t x = value(g, t, &i->x[2]);
        t->r[i->x[0].reg] = x & ((UINT64_C(1) << half) - 1);
        t->r[i->x[1].reg] = trim(x, ptx_sizes[i->type]) >> half;
    } else if (i->split == 2) {
        t->r[i->x[0].reg] = value(g, t, &i->x[1]) | value(g, t, &i->x[2]) << half;
    } else {
        const uint64_t x = value(g, t, &i->x[1]);
        t->r[i->x[0].reg] = i->type == PTX_PRED ? x : trim(x, ptx_sizes[i->type]);
    }
}

static void compute(run *g, thread *t, const ptx_instruction *i)
{
    const uint64_t a = value(g, t, &i->x[1]), b = i->n > 2 ? value(g, t, &i->x[2]) : 0;
    const uint64_t c = i->n > 3 ? value(g, t, &i->x[3]) : 0;
    uint64_t d;
    switch (i->op) {
    case PTX_setp:
        d = (uint64_t)test(i, a, b);
        break;
    case PTX_selp:
        d = trim(c ? a : b, ptx_sizes[i->type]);
        break;
    case PTX_cvt:
        d = convert(g, i, a, b);
        break;
    case PTX_cvta:
        d = a;
        break;
    default:
        if (i->type == PTX_F32)
            d = i->op == PTX_neg   ? a ^ 0x80000000
                : i->op == PTX_abs ? a & 0x7FFFFFFF
                                   : of_f32(g, i->op, f32(a), f32(b), f32(c));
        else if (i->type == PTX_F64)
            d = i->op == PTX_neg   ? a ^ UINT64_C(1) << 63
                : i->op == PTX_abs ? a & ~(UINT64_C(1) << 63)
                                   : of_f64(g, i->op, f64(a), f64(b), f64(c));
        else
            d = of_integers(g, t, i, a, b, c);
    }
    t->r[i->x[0].reg] = d;
}

/* ---- running ---- */

typedef enum outcome { WAITS, ENDS, FAILS } outcome;

/* To the next barrier, or the end. */
static outcome go(run *g, thread *t)
{
    for (;;) {
        if (t->pc >= g->kernel->n) {
            g->wrong = "it ran off the end";
            t->pc = g->kernel->n - 1;
            return FAILS;
        }
        const ptx_instruction *i = &g->kernel->code[t->pc];
        if (i->guard >= 0 && (t->r[i->guard] == 0) != i->unless) {
            t->pc++;
            continue;
        }
        switch (i->op) {
        case PTX_bra:
            t->pc = i->target;
            continue;
        case PTX_ret:
            t->done = 1;
            return ENDS;
        case PTX_bar:
            t->pc++;
            return WAITS;
        case PTX_ld:
            load(g, t, i);
            break;
        case PTX_st:
            store(g, t, i);
            break;
        case PTX_atom:
            atomic(g, t, i);
            break;
        case PTX_mov:
            move(g, t, i);
            break;
        default:
            compute(g, t, i);
        }
        if (g->wrong)
            return FAILS;
        t->pc++;
    }
}

/* All threads from barrier to barrier. Returns the number of the line that failed, or 0. */
static int run_block(run *g, thread *threads)
{
    for (;;) {
        unsigned waiting = 0, ended = 0;
        int at = -1;
        g->me.launch = launches;
        g->me.block = g->block;
        g->me.stamp = ++stamps;
        for (unsigned k = 0; k < g->threads; k++) {
            thread *t = &threads[k];
            g->me.thread = (uint16_t)k;
            if (!t->done) {
                const outcome o = go(g, t);
                if (o == FAILS)
                    return g->kernel->code[t->pc].line;
                if (o == WAITS) {
                    waiting++;
                    if (at >= 0 && at != t->pc) {
                        g->wrong = "threads of a block wait at different barriers";
                        return g->kernel->code[t->pc - 1].line;
                    }
                    at = t->pc;
                }
            }
            ended += (unsigned)t->done;
        }
        if (ended == g->threads)
            return 0;
        if (ended > 0 && waiting > 0) {
            g->wrong = "some threads of a block wait at a barrier, and others have ended";
            return g->kernel->code[at - 1].line;
        }
    }
}

int ptx_launch(const ptx_kernel *k, unsigned grid, unsigned block, const uint64_t *arguments,
               ptx_memory *memory, size_t n, ptx_error error)
{
    const size_t registers = (size_t)k->registers + 1;
    run g = {.kernel = k,
             .arguments = arguments,
             .memory = memory,
             .n = n,
             .grid = grid,
             .threads = block};
    uint64_t *r = malloc(registers * block * sizeof *r);
    thread *threads = calloc(block, sizeof *threads);
    unsigned char *local = malloc((size_t)k->local * block + 1);
    g.shared = malloc(k->shared + 1);
    g.shadow = calloc(k->shared / GRAIN + 2, sizeof *g.shadow);
    int line = 0;
    launches++;
    for (g.block = 0; g.block < grid && line == 0; g.block++) {
        memset(g.shared, 0xA5, k->shared); /* nothing is zero by chance */
        memset(r, 0x5A, registers * block * sizeof *r);
        memset(local, 0xC3, (size_t)k->local * block + 1);
        memset(g.shadow, 0, (k->shared / GRAIN + 2) * sizeof *g.shadow);
        for (unsigned t = 0; t < block; t++)
            threads[t] = (thread){.r = r + t * registers, .local = local + (size_t)t * k->local};
        line = run_block(&g, threads);
    }
    if (line)
        snprintf(error, sizeof(ptx_error), "%s, block %u, line %d of the PTX: %s", k->name,
                 g.block - 1, line, g.wrong);
    free(g.shadow);
    free(g.shared);
    free(local);
    free(threads);
    free(r);
    return line == 0;
}

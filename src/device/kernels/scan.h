/* scan: the statistics of scaled gradients, in the library's order of additions, and the unscaled
 * gradients where they are wanted. A block of 256 threads takes a chunk of 65536 elements, a slice
 * of 4096 at a time: a warp takes 512 of them, and its 32 threads are the library's 32 lanes.
 *
 * (1) A gradient is read once. It waits in `stage` until its slice is folded: the rare 512 that
 *     have to be summed in f64 are read there, and only then is anything written in place.
 * (2) Lanes add in the order of the elements: in f32 inside of 512, then in f64, as ref.c does. */
#include "device/kernels/number.h"

DEVICE int gsd_sums_in_f32(uint32_t top)
{
    return top == 0 || (top >= 0x2B800000u && top <= 0x5D800000u);
}

/* Counters of a chunk, in shared memory. */
#define GSD_INFS      0
#define GSD_NANS      1
#define GSD_BAD       2
#define GSD_AMAX      3
#define GSD_ZERO      4
#define GSD_SUBNORMAL 5
#define GSD_UNDERFLOW 6
#define GSD_TOP       7
#define GSD_COUNTERS  8

typedef struct gsd_source {
    const GLOBAL uint8_t *from;
    uint32_t n, begin; /* elements of the chunk; the first of the slice */
    uint32_t underflow, subnormal;
} gsd_source;

/* A thread's 16 elements of a slice: to the stage, with their sum and largest magnitude. */
DEVICE void gsd_scan_thread(gsd_source s, uint32_t type, uint32_t t, SHARED_PTR float *stage,
                            SHARED_PTR float *part, SHARED_PTR uint32_t *tops,
                            SHARED_PTR uint32_t *all)
{
    const uint32_t warp = t / GSD_LANES, at = warp * GSD_BLOCK + t % GSD_LANES;
    uint32_t top = 0, amax = 0, zero = 0, subnormal = 0, underflow = 0;
    float sum = 0;
    for (uint32_t k = 0; k < GSD_STEPS; k++) {
        const uint32_t i = at + k * GSD_LANES;
        if (s.begin + i < s.n) {
            const float g = gsd_load(s.from, type, s.begin + i);
            const uint32_t mag = gsd_magnitude(g);
            stage[i] = g;
            sum += g * g;
            top = gsd_max(top, mag);
            if (mag < GSD_INF) {
                amax = gsd_max(amax, mag);
            } else {
                SHARED_ADD(mag == GSD_INF ? &all[GSD_INFS] : &all[GSD_NANS], 1u);
                SHARED_MIN(&all[GSD_BAD], s.begin + i);
            }
            if (s.underflow) {
                zero += mag == 0;
                underflow += mag > 0 && mag < s.underflow;
                subnormal += mag >= s.underflow && mag < s.subnormal;
            }
        }
    }
    part[t] = sum;
    SHARED_MAX(&tops[warp], top);
    SHARED_MAX(&all[GSD_AMAX], amax);
    if (s.underflow) {
        SHARED_ADD(&all[GSD_ZERO], zero);
        SHARED_ADD(&all[GSD_SUBNORMAL], subnormal);
        SHARED_ADD(&all[GSD_UNDERFLOW], underflow);
    }
}

/* Lane t of a slice's sums, added to what it has. */
DEVICE double gsd_scan_lane(double sum, uint32_t left, uint32_t t, SHARED_PTR const float *stage,
                            SHARED_PTR const float *part, SHARED_PTR const uint32_t *tops)
{
    for (uint32_t b = 0; b < GSD_WARPS && b * GSD_BLOCK < left; b++) {
        if (gsd_sums_in_f32(tops[b])) {
            sum += (double)part[b * GSD_LANES + t];
        } else {
            for (uint32_t k = 0; k < GSD_STEPS; k++) {
                const uint32_t i = b * GSD_BLOCK + k * GSD_LANES + t;
                if (i < left) {
                    const double g = (double)stage[i];
                    sum += g * g;
                }
            }
        }
    }
    return sum;
}

KERNEL gsd_scan(ARGUMENTS)
{
    SHARED float stage[GSD_SLICE]; /* 16 KB */
    SHARED float part[GSD_THREADS];
    SHARED double lanes[GSD_LANES];
    SHARED uint32_t tops[2u * GSD_WARPS], all[GSD_COUNTERS];
    const uint32_t c = BLOCK_ID, type = tensors[chunks[c].tensor].grad_type;
    const uint32_t unscale = gsd_exhausted(set, state) ? GSD_FUSED : set->unscale;
    const uint64_t first = chunks[c].first;
    const GLOBAL gsd_tensor *x = &tensors[chunks[c].tensor];
    const uint32_t n = gsd_count(x->count, first);
    const float inverse = (float)state->inverse;
    const uint32_t out_type = unscale == GSD_TO_F32 ? GS_F32 : type;
    GLOBAL uint8_t *out = unscale == GSD_TO_F32 ? AT(out_base, x->out + first * 4u)
                                                : AT(grad_base, x->grad + first * gsd_size(type));
    gsd_source s;
    s.from = AT(grad_base, x->grad + first * gsd_size(type));
    s.n = n;
    s.underflow = set->underflow;
    s.subnormal = set->subnormal;

    EACH_THREAD (t) {
        if (t < GSD_LANES)
            lanes[t] = 0;
        if (t < GSD_COUNTERS)
            all[t] = t == GSD_BAD ? GSD_NOWHERE : 0;
        if (t < 2u * GSD_WARPS)
            tops[t] = 0;
    }
    BARRIER;
    for (s.begin = 0; s.begin < n; s.begin += GSD_SLICE) {
        /* tops of this slice, and of the slice before and after, by turns */
        const uint32_t left = n - s.begin, turn = s.begin / GSD_SLICE % 2u;
        SHARED_PTR uint32_t *own = tops + turn * GSD_WARPS, *other = tops + (1u - turn) * GSD_WARPS;
        EACH_THREAD (t) {
            if (type == GS_F32)
                gsd_scan_thread(s, GS_F32, t, stage, part, own, all);
            else if (type == GS_F16)
                gsd_scan_thread(s, GS_F16, t, stage, part, own, all);
            else
                gsd_scan_thread(s, GS_BF16, t, stage, part, own, all);
        }
        BARRIER; /* the slice is staged */
        EACH_THREAD (t) {
            if (t < GSD_LANES)
                lanes[t] = gsd_scan_lane(lanes[t], left, t, stage, part, own);
            else if (t < GSD_LANES + GSD_WARPS)
                SHARED_MAX(&all[GSD_TOP], own[t - GSD_LANES]);
            else if (t < GSD_LANES + 2u * GSD_WARPS)
                other[t - GSD_LANES - GSD_WARPS] = 0;
            if (unscale != GSD_FUSED)
                for (uint32_t i = t; i < left && i < GSD_SLICE; i += GSD_THREADS)
                    gsd_store(out, out_type, s.begin + i, stage[i] * inverse);
        }
        BARRIER;
    }
    for (uint32_t width = GSD_LANES / 2u; width > 0; width /= 2u) {
        EACH_THREAD (t) {
            if (t < width)
                lanes[t] += lanes[t + width];
        }
        BARRIER;
    }
    EACH_THREAD (t) {
        if (t == 0) {
            sums[c] = all[GSD_TOP] >= GSD_INF ? (double)gsd_float(GSD_INF) : lanes[0];
            found[c].elements = n;
            found[c].inf = all[GSD_INFS];
            found[c].nan = all[GSD_NANS];
            found[c].zero = all[GSD_ZERO];
            found[c].subnormal = all[GSD_SUBNORMAL];
            found[c].underflow = all[GSD_UNDERFLOW];
            found[c].amax = all[GSD_AMAX];
            found[c].bad = all[GSD_BAD];
        }
    }
}

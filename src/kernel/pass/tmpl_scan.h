/* Sums of squares, and unscaling, which takes them of what it overwrites: a template. The including
 * source has, besides INLINE and TARGET,
 *
 *     #define FAMILY(name)      the name of what makes kernels
 *     vector, f64s              types: magnitudes, and some of GSI_LANES sums in f64
 *     vector larger(vector a, vector b, gs_dtype type)
 *     uint32_t top_of(vector x, gs_dtype type)              the largest of them, as f32 bits
 *     vector scan_block(f64s *acc, const void *src, gs_dtype type)
 *                               adds the squares of GSI_BLOCK elements, returns their magnitudes
 *     void scale_block(void *dst, gs_dtype to, const void *src, gs_dtype from, size_t n,
 *                      float factor, bool stream)
 *     void fence(void)          after streaming
 *     void count_all(gsi_counts *out, const void *src, size_t n, gsi_limits limits, gs_dtype type)
 *
 * and may have, with HAS_UNSCALE_BLOCK defined,
 *
 *     bool unscale_block(f64s *acc, vector *top, void *dst, gs_dtype to, const void *src,
 *                        gs_dtype from, float factor)
 *                               scan and scale at once; false: this block has to be looked at again
 *                               after its scan, and nothing was done
 *
 * It has no guard: it is included once per source. */

enum { F64S = GSI_LANES * sizeof(double) / sizeof(f64s) };

/* The block at element i of n, of which *count are there; rest: room for the last one, filled up
 * with zeros, which add nothing in any lane. */
INLINE const void *block_at(uint32_t rest[GSI_BLOCK], const void *src, size_t i, size_t n,
                            size_t *count, gs_dtype type)
{
    const void *block = at(src, i, type);
    *count = n - i < GSI_BLOCK ? n - i : GSI_BLOCK;
    if (*count == GSI_BLOCK)
        return block;
    memset(rest, 0, GSI_BLOCK * sizeof *rest);
    memcpy(rest, block, *count * gsi_size_of(type));
    return rest;
}

INLINE double fold(const f64s acc[F64S], uint32_t amax)
{
    double lanes[GSI_LANES];
    memcpy(lanes, acc, sizeof lanes);
    return gsi_fold(lanes, amax);
}

INLINE uint32_t FAMILY(scan)(double *sumsq, const void *src, size_t n, gs_dtype type)
{
    uint32_t rest[GSI_BLOCK];
    f64s acc[F64S] = {0};
    vector top = {0};
    for (size_t i = 0, count; i < n; i += count) {
        const void *block = block_at(rest, src, i, n, &count, type);
        top = larger(top, scan_block(acc, block, type), type);
    }
    const uint32_t amax = top_of(top, type);
    *sumsq = fold(acc, amax);
    return amax;
}

/* Of a block, before it is overwritten. */
TARGET static __attribute__((noinline)) void count_bad(gsi_counts *bad, const void *src, size_t i,
                                                       size_t n, gs_dtype type)
{
    gsi_counts part;
    count_all(&part, src, n, (gsi_limits){0}, type);
    gsi_add_bad(bad, &part, i);
}

INLINE uint32_t FAMILY(unscale)(gsi_counts *bad, double *sumsq, void *dst, gs_dtype to,
                                const void *src, gs_dtype from, size_t n, float factor, bool stream)
{
    uint32_t rest[GSI_BLOCK];
    f64s acc[F64S] = {0};
    vector top = {0};
    for (size_t i = 0, count; i < n; i += count) {
        const void *block = block_at(rest, src, i, n, &count, from);
        char *const d = (char *)dst + i * gsi_size_of(to);
#ifdef HAS_UNSCALE_BLOCK
        if (!stream && count == GSI_BLOCK && unscale_block(acc, &top, d, to, block, from, factor))
            continue;
#endif
        const vector one = scan_block(acc, block, from);
        if (__builtin_expect(top_of(one, from) >= GSI_F32_INF, 0))
            count_bad(bad, block, i, count, from);
        else
            top = larger(top, one, from);
        scale_block(d, to, block, from, count, factor, stream);
    }
    if (stream)
        fence();
    uint32_t amax = top_of(top, from);
    if (bad->inf + bad->nan > 0) {
        bad->amax = amax > bad->amax ? amax : bad->amax;
        amax = GSI_F32_INF;
    }
    *sumsq = fold(acc, amax);
    return amax;
}

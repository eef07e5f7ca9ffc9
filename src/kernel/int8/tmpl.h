/* The micro-kernel for one instruction set: a template. The including source has defined
 *
 *     TARGET, INLINE
 *     MR, VECS, LANES              rows; vectors of a row of sums; sums of a vector
 *     vec                          the type of a vector
 *     vec load(const void *p); void store(void *p, vec x); vec every(uint32_t word)
 *     vec dot(vec sum, vec a, vec b)     sum + the products of the elements of each word */
#define UNROLL _Pragma("GCC unroll 16")

enum { NR = VECS * LANES };

INLINE void micro_rows(int32_t *sums, size_t stride, const uint32_t *a, size_t a_stride,
                       const uint32_t *b, const int m, size_t words)
{
    vec sum[MR][VECS];
    UNROLL for (int i = 0; i < m; i++) UNROLL for (int v = 0; v < VECS; v++) sum[i][v] =
        load(sums + (size_t)i * stride + v * LANES);
    for (size_t w = 0; w < words; w++) {
        vec of_b[VECS];
        UNROLL for (int v = 0; v < VECS; v++) of_b[v] = load(b + w * NR + v * LANES);
        UNROLL for (int i = 0; i < m; i++)
        {
            const vec of_a = every(a[(size_t)i * a_stride + w]);
            UNROLL for (int v = 0; v < VECS; v++) sum[i][v] = dot(sum[i][v], of_a, of_b[v]);
        }
    }
    UNROLL for (int i = 0; i < m; i++) UNROLL for (int v = 0; v < VECS; v++)
        store(sums + (size_t)i * stride + v * LANES, sum[i][v]);
}

static TARGET void micro(int32_t *sums, size_t stride, const uint32_t *a, size_t a_stride,
                         const uint32_t *b, size_t m, size_t words)
{
    if (m == MR) {
        micro_rows(sums, stride, a, a_stride, b, MR, words);
        return;
    }
    for (size_t i = 0; i < m; i++)
        micro_rows(sums + i * stride, stride, a + i * a_stride, a_stride, b, 1, words);
}

#include "kernel/rows/rows.h"

size_t gsi_check_index(const int32_t *index, size_t n, size_t limit, bool ignore)
{
    size_t i = 0;
    while (i < n && (index[i] < 0 ? ignore : (size_t)index[i] < limit))
        i++;
    return i;
}

void gsi_moments_merge(double *mean, double *m2, size_t rows, const float *mean_more,
                       const float *m2_more, size_t more, size_t cols)
{
    const double share = more ? (double)more / (double)(rows + more) : 0;
    for (size_t c = 0; c < cols; c++) {
        const double delta = (double)mean_more[c] - mean[c];
        mean[c] += delta * share;
        m2[c] += (double)m2_more[c] + delta * delta * (double)rows * share;
    }
}

gsi_quant gsi_quant_of(float amax, int bits, bool is_unsigned, bool narrow)
{
    const float high = (float)((1 << (bits - 1 + is_unsigned)) - 1);
    const bool none = amax <= 0x1p-24f;
    const float scale = none ? 1 : high / amax;
    return (gsi_quant){.amax = amax,
                       .multiplier = none ? 0 : scale,
                       .divisor = scale,
                       .low = is_unsigned ? 0
                              : narrow    ? -high
                                          : -high - 1,
                       .high = high};
}

gsi_dropout gsi_dropout_of(float p, uint64_t seed, uint64_t first)
{
    return (gsi_dropout){.seed = seed,
                         .first = first,
                         .threshold = (uint32_t)(p * 65536.0f + 0.5f),
                         .scale = p < 1 ? 1 / (1 - p) : 0};
}

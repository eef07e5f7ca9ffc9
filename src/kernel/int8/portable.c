/* INT8 products in plain C. */
#include "kernel/dispatch.h"

enum { MR = 4, NR = 8 };

static void micro(int32_t *sums, size_t stride, const uint32_t *a, size_t a_stride,
                  const uint32_t *b, size_t m, size_t words)
{
    for (size_t i = 0; i < m; i++) {
        const int16_t *x = (const int16_t *)(const void *)(a + i * a_stride);
        const int16_t *y = (const int16_t *)(const void *)b;
        int32_t *to = sums + i * stride;
        for (size_t w = 0; w < words; w++, x += 2, y += 2 * NR)
            for (int j = 0; j < NR; j++)
                to[j] += x[0] * y[2 * j] + x[1] * y[2 * j + 1];
    }
}

static const gsi_int8_isa isa = {.mr = MR, .nr = NR, .depth = 2, .micro = micro};

void gsi_int8_portable(gsi_kernels *k) { k->int8 = &isa; }

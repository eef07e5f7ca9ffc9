#include "base/base.h"

void gsi_philox(uint32_t out[4], uint64_t key, uint64_t counter)
{
    uint32_t c0 = (uint32_t)counter, c1 = (uint32_t)(counter >> 32), c2 = 0, c3 = 0;
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);

    for (int round = 0; round < 10; round++) {
        const uint64_t p0 = (uint64_t)0xD2511F53 * c0, p1 = (uint64_t)0xCD9E8D57 * c2;
        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)p1;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)p0;
        k0 += 0x9E3779B9; /* golden ratio */
        k1 += 0xBB67AE85; /* sqrt(3) - 1 */
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

uint32_t gs_random_u32(uint64_t seed, uint64_t index)
{
    uint32_t block[4];
    gsi_philox(block, seed, index);
    return block[0];
}

uint16_t gsi_random_u16(uint64_t seed, uint64_t i)
{
    const unsigned j = (unsigned)(i % GSI_RANDOM_GROUP);
    uint32_t block[4];
    gsi_philox(block, seed, i / GSI_RANDOM_GROUP * 16 + j % 16);
    return (uint16_t)(block[j / 32] >> (j / 16 % 2 * 16));
}

#include "train/data.h"

enum { ROUNDS = 6 };

/* The finalizer of MurmurHash3 (Appleby): every bit of x moves every bit of the result. */
static uint32_t mix(uint32_t x)
{
    x = (x ^ x >> 16) * 0x85EBCA6B;
    x = (x ^ x >> 13) * 0xC2B2AE35;
    return x ^ x >> 16;
}

/* A Feistel network permutes the numbers of 2h bits, the smallest such set that holds all below n;
 * where it leads out of them, it is followed further: the cycle comes back, within four steps on
 * average. */
uint64_t gsi_permute(uint64_t i, uint64_t n, uint64_t key, uint64_t epoch)
{
    uint32_t keys[8];
    unsigned half = 1;
    while (half < 32 && n > (uint64_t)1 << 2 * half)
        half++;
    const uint32_t mask = (uint32_t)(((uint64_t)1 << half) - 1);
    gsi_philox(keys, key, 2 * epoch);
    gsi_philox(keys + 4, key, 2 * epoch + 1);
    do {
        uint32_t left = (uint32_t)(i >> half), right = (uint32_t)i & mask;
        for (int r = 0; r < ROUNDS; r++) {
            const uint32_t next = left ^ (mix(right ^ keys[r]) & mask);
            left = right;
            right = next;
        }
        i = (uint64_t)left << half | right;
    } while (i >= n);
    return i;
}

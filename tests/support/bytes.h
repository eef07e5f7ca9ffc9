/* bytes.h: what a test puts together byte by byte before it is a file. */
#ifndef BYTES_H
#define BYTES_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef struct bytes {
    uint8_t data[1 << 17];
    size_t n;
} bytes;

static inline void add(bytes *b, const void *data, size_t n)
{
    if (n > sizeof b->data - b->n)
        abort();
    memcpy(b->data + b->n, data, n);
    b->n += n;
}

static inline void add_text(bytes *b, const char *text) { add(b, text, strlen(text)); }

static inline void add_little(bytes *b, uint64_t x, int size)
{
    for (int i = 0; i < size; i++, x >>= 8) /* more than 8 are zeros */
        add(b, &(uint8_t){(uint8_t)x}, 1);
}

static inline void add_big(bytes *b, uint64_t x, int size)
{
    for (int i = size - 1; i >= 0; i--)
        add(b, &(uint8_t){(uint8_t)(x >> 8 * i)}, 1);
}

#endif

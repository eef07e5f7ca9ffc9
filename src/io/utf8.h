#ifndef GSI_IO_UTF8_H
#define GSI_IO_UTF8_H

#include <stddef.h>
#include <stdint.h>

/* The character at p < end, and its bytes. 0: it is not UTF-8, but a stray byte, a sequence that is
 * cut or too long, or a surrogate. */
static inline size_t gsi_utf8_char(uint32_t *code, const uint8_t *p, const uint8_t *end)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    const uint8_t lead = *p;
    *code = lead;
    if (lead < 0x80)
        return 1;
    const size_t n = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
    if (lead < 0xC2 || lead > 0xF4 || (size_t)(end - p) < n)
        return 0;
    uint32_t x = lead & (0x7Fu >> n);
    for (size_t i = 1; i < n; i++) {
        if ((p[i] & 0xC0) != 0x80)
            return 0;
        x = x << 6 | (p[i] & 0x3F);
    }
    *code = x;
    return x < least[n] || x > 0x10FFFF || (x >= 0xD800 && x <= 0xDFFF) ? 0 : n;
}

#endif

/* What a character is to the pre-tokenisation of GPT-2: \p{L}, \p{N}, \s or something else. */
#ifndef GSI_IO_BPE_UNICODE_H
#define GSI_IO_BPE_UNICODE_H

#include <stddef.h>
#include <stdint.h>

typedef enum gsi_char_class { GSI_OTHER, GSI_LETTER, GSI_NUMBER, GSI_SPACE } gsi_char_class;

/* Two bits per code point, in blocks of 256 that occur once each. */
extern const uint8_t gsi_unicode_index[0x1100];
extern const uint8_t gsi_unicode_blocks[][64];

static inline gsi_char_class gsi_char_class_of(uint32_t code)
{
    const uint8_t four = gsi_unicode_blocks[gsi_unicode_index[code >> 8]][code >> 2 & 63];
    return (gsi_char_class)(four >> 2 * (code & 3) & 3);
}

/* The character at p < end and its bytes. What is not UTF-8 (a stray byte, a sequence that is cut,
 * too long, or a surrogate) is a character of one byte that no class has: text of any bytes can be
 * tokenized, and comes back as it was. */
static inline size_t gsi_char_at(gsi_char_class *class, const uint8_t *p, const uint8_t *end)
{
    const uint8_t lead = *p;
    if (lead < 0x80) {
        *class = gsi_char_class_of(lead);
        return 1;
    }
    *class = GSI_OTHER;
    const size_t n = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
    if (lead < 0xC2 || lead > 0xF4 || (size_t)(end - p) < n)
        return 1;
    uint32_t code = lead & (0x7Fu >> n);
    for (size_t i = 1; i < n; i++) {
        if ((p[i] & 0xC0) != 0x80)
            return 1;
        code = code << 6 | (p[i] & 0x3F);
    }
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    if (code < least[n] || code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF))
        return 1;
    *class = gsi_char_class_of(code);
    return n;
}

#endif

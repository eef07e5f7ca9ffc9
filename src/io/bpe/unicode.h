/* What a character is to the pre-tokenisation of GPT-2: \p{L}, \p{N}, \s or something else. */
#ifndef GSI_IO_BPE_UNICODE_H
#define GSI_IO_BPE_UNICODE_H

#include "io/utf8.h"

typedef enum gsi_char_class { GSI_OTHER, GSI_LETTER, GSI_NUMBER, GSI_SPACE } gsi_char_class;

/* Two bits per code point, in blocks of 256 that occur once each. */
extern const uint8_t gsi_unicode_index[0x1100];
extern const uint8_t gsi_unicode_blocks[][64];

static inline gsi_char_class gsi_char_class_of(uint32_t code)
{
    const uint8_t four = gsi_unicode_blocks[gsi_unicode_index[code >> 8]][code >> 2 & 63];
    return (gsi_char_class)(four >> 2 * (code & 3) & 3);
}

/* The class of the character at p < end, and its bytes. What is not UTF-8 is a character of one
 * byte that no class has: text of any bytes can be tokenized, and comes back as it was. */
static inline size_t gsi_char_at(gsi_char_class *class, const uint8_t *p, const uint8_t *end)
{
    uint32_t code;
    const size_t n = gsi_utf8_char(&code, p, end);
    if (n == 0) {
        *class = GSI_OTHER;
        return 1;
    }
    *class = gsi_char_class_of(code);
    return n;
}

#endif

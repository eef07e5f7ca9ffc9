/* utf8.h: text from files and users, a character at a time; it may hold anything. */
#ifndef UTF8_H
#define UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Length of the sequence at text: 1..4, or 0 if it is malformed (overlong, a surrogate, above
 * U+10FFFF or cut off). */
static inline int utf8_length(const char *text)
{
    const unsigned char *s = (const unsigned char *)text;
    static const struct {
        unsigned char first, last, low, high; /* of the lead; of the byte after it */
        int length;
    } rows[] = {
        {0x00, 0x7F, 0x00, 0xFF, 1}, {0xC2, 0xDF, 0x80, 0xBF, 2}, {0xE0, 0xE0, 0xA0, 0xBF, 3},
        {0xE1, 0xEC, 0x80, 0xBF, 3}, {0xED, 0xED, 0x80, 0x9F, 3}, {0xEE, 0xEF, 0x80, 0xBF, 3},
        {0xF0, 0xF0, 0x90, 0xBF, 4}, {0xF1, 0xF3, 0x80, 0xBF, 4}, {0xF4, 0xF4, 0x80, 0x8F, 4}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (s[0] >= rows[i].first && s[0] <= rows[i].last) {
            if (rows[i].length > 1 && (s[1] < rows[i].low || s[1] > rows[i].high))
                return 0;
            for (int k = 2; k < rows[i].length; k++)
                if (s[k] < 0x80 || s[k] > 0xBF)
                    return 0;
            return rows[i].length;
        }
    return 0;
}

/* The character of a sequence of that length, 1..4. */
static inline uint32_t utf8_code(const char *text, int length)
{
    static const unsigned char masks[] = {0, 0x7F, 0x1F, 0x0F, 0x07};
    uint32_t code = (unsigned char)text[0] & masks[length];
    for (int k = 1; k < length; k++)
        code = code << 6 | ((unsigned char)text[k] & 0x3F);
    return code;
}

/* Shows as nothing and changes how the rest is shown: controls of terminals (C0, C1), of direction,
 * of lines; joiners and marks without width; what is no character. */
static inline bool utf8_is_control(uint32_t code)
{
    static const struct {
        uint32_t first, last;
    } rows[] = {{0x00, 0x1F},     {0x7F, 0x9F},     {0xAD, 0xAD},     {0x61C, 0x61C},
                {0x180E, 0x180E}, {0x200B, 0x200F}, {0x2028, 0x202E}, {0x2060, 0x206F},
                {0xFDD0, 0xFDEF}, {0xFEFF, 0xFEFF}, {0xFFF9, 0xFFFB}, {0xFFFE, 0xFFFF}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (code >= rows[i].first && code <= rows[i].last)
            return true;
    return (code & 0xFFFE) == 0xFFFE || (code >= 0xE0000 && code <= 0xE0FFF);
}

#endif

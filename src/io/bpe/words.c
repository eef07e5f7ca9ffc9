/* Text into words, by the pattern of GPT-2:
 *
 *     's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
 *
 * A word is a run of letters, of numbers or of other characters, with the blank before it. Of white
 * space before something else all but the last character is a word, so that a blank is left for
 * the word after it. */
#include "io/bpe/bpe.h"
#include "io/bpe/unicode.h"

static size_t contraction(const uint8_t *p, const uint8_t *end)
{
    const size_t n = (size_t)(end - p);
    const int a = n > 1 ? p[1] : 0, b = n > 2 ? p[2] : 0;
    if (a == 's' || a == 't' || a == 'm' || a == 'd')
        return 2;
    return (a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l') ? 3 : 0;
}

static const uint8_t *skip_letters(const uint8_t *p, const uint8_t *end)
{
    while (p < end && (uint8_t)((*p | 0x20) - 'a') < 26)
        p++;
    return p;
}

/* Behind the characters of this class; *last: where the last of them begins, else `from`. */
static const uint8_t *skip_run(gsi_char_class class, const uint8_t *from, const uint8_t *end,
                               const uint8_t **last)
{
    const uint8_t *p = class == GSI_LETTER ? skip_letters(from, end) : from;
    while (p < end) {
        gsi_char_class next;
        const size_t n = gsi_char_at(&next, p, end);
        if (next != class)
            break;
        *last = p;
        p += n;
    }
    return p;
}

size_t gsi_word(const uint8_t *p, const uint8_t *end)
{
    gsi_char_class class, next;
    const uint8_t *last = p;
    if (*p == '\'') {
        const size_t n = contraction(p, end);
        if (n > 0)
            return n;
    }
    size_t n = gsi_char_at(&class, p, end);
    if (*p == ' ' && end - p > 1) {
        const size_t more = gsi_char_at(&next, p + 1, end);
        if (next != GSI_SPACE) {
            class = next;
            n = 1 + more;
        }
    }
    const uint8_t *stop = skip_run(class, p + n, end, &last);
    if (class == GSI_SPACE && stop < end && last > p)
        return (size_t)(last - p);
    return (size_t)(stop - p);
}

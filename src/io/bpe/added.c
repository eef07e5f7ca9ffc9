/* Added tokens, such as <|endoftext|>: found in the text before it is cut into words, the leftmost
 * first, of those at one place the longest. */
#include "io/bpe/bpe.h"
#include "io/bpe/unicode.h"

#include <stdlib.h>
#include <string.h>

static int by_place(const void *a, const void *b)
{
    const gsi_added *x = a, *y = b;
    if (x->normalized != y->normalized)
        return x->normalized ? 1 : -1;
    if (x->first != y->first)
        return x->first < y->first ? -1 : 1;
    if (x->length != y->length)
        return x->length > y->length ? -1 : 1;
    return x->id < y->id ? -1 : x->id > y->id;
}

void gsi_added_finish(gs_tokenizer *t)
{
    qsort(t->added, t->n_added, sizeof *t->added, by_place);
    size_t i = 0;
    for (int normalized = 0; normalized < 2; normalized++)
        for (int byte = 0; byte <= 256; byte++) {
            t->added_from[normalized][byte] = (uint32_t)i;
            while (i < t->n_added && t->added[i].normalized == normalized &&
                   t->added[i].first == byte)
                i++;
        }
}

static const uint8_t *spaces_before(const uint8_t *from, const uint8_t *p)
{
    while (p > from) {
        const uint8_t *q = p - 1;
        gsi_char_class class;
        while (q > from && (*q & 0xC0) == 0x80)
            q--;
        if (gsi_char_at(&class, q, p) != (size_t)(p - q) || class != GSI_SPACE)
            break;
        p = q;
    }
    return p;
}

static const uint8_t *spaces_after(const uint8_t *p, const uint8_t *end)
{
    while (p < end) {
        gsi_char_class class;
        const size_t n = gsi_char_at(&class, p, end);
        if (class != GSI_SPACE)
            break;
        p += n;
    }
    return p;
}

/* The first of them in [p, end), and where; -1: there is none. */
static int find(const gs_tokenizer *t, bool normalized, const uint8_t *p, const uint8_t *end,
                const uint8_t **at)
{
    const uint32_t *from = t->added_from[normalized];
    if (from[0] == from[256])
        return -1;
    for (; p < end; p++)
        for (uint32_t i = from[*p]; i < from[*p + 1]; i++) {
            const gsi_added *a = &t->added[i];
            if (a->length <= (size_t)(end - p) && memcmp(p, t->bytes + a->at, a->length) == 0) {
                *at = p;
                return (int)i;
            }
        }
    return -1;
}

/* As in Hugging Face's tokenizers, the next one is looked for behind the token itself, not behind
 * the white space that it strips. */
gs_status gsi_added_split(const gs_tokenizer *t, bool normalized, const uint8_t *p,
                          const uint8_t *end, gsi_part_fn *part, void *user)
{
    const uint8_t *from = p, *search = p, *at = NULL;
    gs_status status = GS_OK;
    int found;
    while (status == GS_OK && (found = find(t, normalized, search, end, &at)) >= 0) {
        const gsi_added *a = &t->added[found];
        search = at + a->length;
        const uint8_t *begin = a->lstrip ? spaces_before(p, at) : at;
        if (a->lstrip && begin < from)
            begin = from;
        if (from < begin)
            status = part(user, from, begin, GSI_NO_TOKEN);
        if (status == GS_OK)
            status = part(user, begin, search, a->id);
        from = a->rstrip ? spaces_after(search, end) : search;
    }
    return status == GS_OK && from < end ? part(user, from, end, GSI_NO_TOKEN) : status;
}

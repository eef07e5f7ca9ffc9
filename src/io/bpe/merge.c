/* The merges of a word: of all neighbours the pair of the lowest rank, the leftmost of equals,
 * until no pair has a merge. Short words look for it by going through the ranks; in long ones, such
 * as a file without a blank, pairs wait in a heap, so that n tokens take n log n steps. */
#include "io/bpe/bpe.h"
#include "io/lines.h"

#include <string.h>

static uint32_t rank_of(const gs_tokenizer *t, int32_t left, int32_t right)
{
    return gsi_merge_find(t, (uint32_t)left, (uint32_t)right)->rank;
}

/* ---- short ---- */

static size_t merge_short(const gs_tokenizer *t, int32_t *ids, size_t n)
{
    uint32_t ranks[GSI_SHORT_WORD]; /* of ids[i] and ids[i + 1] */
    for (size_t i = 0; i + 1 < n; i++)
        ranks[i] = rank_of(t, ids[i], ids[i + 1]);
    while (n > 1) {
        size_t at = 0;
        uint32_t least = ranks[0];
        for (size_t i = 1; i + 1 < n; i++)
            if (ranks[i] < least) {
                least = ranks[i];
                at = i;
            }
        if (least == GSI_NO_RANK)
            break;
        ids[at] = (int32_t)t->merges[least].id;
        n--;
        memmove(ids + at + 1, ids + at + 2, (n - at - 1) * sizeof *ids);
        if (at + 1 < n) {
            memmove(ranks + at + 1, ranks + at + 2, (n - at - 2) * sizeof *ranks);
            ranks[at] = rank_of(t, ids[at], ids[at + 1]);
        }
        if (at > 0)
            ranks[at - 1] = rank_of(t, ids[at - 1], ids[at]);
    }
    return n;
}

/* ---- long ---- */

/* Pairs as rank << 32 | position: the smallest key is next. A key that is no longer the rank of its
 * position is passed over. */
typedef struct heap {
    uint64_t *keys;
    size_t n;
} heap;

static void push(heap *h, uint64_t key)
{
    size_t i = h->n++;
    for (; i > 0 && h->keys[(i - 1) / 2] > key; i = (i - 1) / 2)
        h->keys[i] = h->keys[(i - 1) / 2];
    h->keys[i] = key;
}

static uint64_t pop(heap *h)
{
    const uint64_t least = h->keys[0], key = h->keys[--h->n];
    size_t i = 0;
    for (size_t child; (child = 2 * i + 1) < h->n; i = child) {
        child += child + 1 < h->n && h->keys[child + 1] < h->keys[child];
        if (h->keys[child] >= key)
            break;
        h->keys[i] = h->keys[child];
    }
    h->keys[i] = key;
    return least;
}

/* The tokens as a list: a position that has been merged into the one before it has no rank. */
typedef struct list {
    const gs_tokenizer *t;
    int32_t *ids;
    uint32_t *ranks, *next, *before; /* [n]; next of the last is n */
    size_t n;
    heap heap;
} list;

static void rank_again(list *l, size_t i)
{
    l->ranks[i] = l->next[i] < l->n ? rank_of(l->t, l->ids[i], l->ids[l->next[i]]) : GSI_NO_RANK;
    if (l->ranks[i] != GSI_NO_RANK)
        push(&l->heap, (uint64_t)l->ranks[i] << 32 | i);
}

static size_t merge_list(list *l)
{
    for (size_t i = 0; i < l->n; i++) {
        l->next[i] = (uint32_t)i + 1;
        l->before[i] = (uint32_t)i - 1;
    }
    for (size_t i = 0; i < l->n; i++)
        rank_again(l, i);
    while (l->heap.n > 0) {
        const uint64_t key = pop(&l->heap);
        const size_t i = (uint32_t)key;
        if (l->ranks[i] != key >> 32)
            continue;
        const uint32_t gone = l->next[i], after = l->next[gone];
        l->ids[i] = (int32_t)l->t->merges[key >> 32].id;
        l->ranks[gone] = GSI_NO_RANK;
        l->next[i] = after;
        if (after < l->n)
            l->before[after] = (uint32_t)i;
        rank_again(l, i);
        if (i > 0)
            rank_again(l, l->before[i]);
    }
    size_t left = 0;
    for (size_t i = 0; i < l->n; i = l->next[i])
        l->ids[left++] = l->ids[i];
    return left;
}

bool gsi_merge_word(gs_tokenizer *t, int32_t *ids, size_t *n)
{
    if (*n <= GSI_SHORT_WORD) {
        *n = merge_short(t, ids, *n);
        return true;
    }
    /* at first n pairs, and two more for each merge */
    const size_t keys = 3 * *n, bytes = keys * sizeof(uint64_t) + 3 * *n * sizeof(uint32_t);
    if (!gsi_grow(&t->heap, &t->work, &t->work_room, bytes, 1))
        return false;
    uint64_t *work = t->work;
    uint32_t *words = (uint32_t *)(work + keys);
    list l = {.t = t,
              .ids = ids,
              .n = *n,
              .ranks = words,
              .next = words + *n,
              .before = words + 2 * *n,
              .heap = {work, 0}};
    *n = merge_list(&l);
    return true;
}

/* Merges learned from text: the pair of tokens that occurs most often in words becomes a token,
 * again and again. The order is that of Hugging Face's BpeTrainer: of pairs that occur equally
 * often the one with the lower ids. So are the counts: those of a pair that has been merged are not
 * taken back, since it is not looked at again.
 *
 *   1. Each word is held once, with how often it occurs; its tokens are ids[at .. at + n).
 *   2. Each pair that has ever been seen is held once, with its count and a list of the words that
 *      have, or had, it.
 *   3. The heap has every pair that may be next, under a count that was true when it was put there.
 *      One whose count has changed is put back under the new one. */
#include "io/bpe/bpe.h"
#include "io/lines.h"

#include <string.h>

static const uint32_t NONE = UINT32_MAX;

typedef struct word {
    const char *text; /* of the caller's */
    uint32_t length;  /* bytes */
    uint32_t n;       /* tokens */
    size_t at;        /* of its first token */
    uint64_t count;
} word;

typedef struct pair {
    uint32_t left, right;
    int64_t count;
    uint32_t words; /* its list: nodes; NONE: empty */
} pair;

typedef struct node {
    uint32_t word, next;
} node;

typedef struct waiting {
    int64_t count;
    uint32_t pair;
} waiting;

typedef struct learner {
    gsi_heap *heap;
    gs_tokenizer *t;
    word *words;
    size_t n_words, words_room;
    uint32_t *word_slots; /* number + 1; 0: empty */
    size_t word_mask;
    int32_t *ids;
    pair *pairs;
    size_t n_pairs, pairs_room;
    uint32_t *pair_slots;
    size_t pair_mask;
    node *nodes;
    size_t n_nodes, nodes_room;
    waiting *queue;
    size_t n_queue, queue_room;
    uint32_t *touched; /* pairs that the last merge made more frequent */
    size_t n_touched, touched_room;
} learner;

/* ---- tables ---- */

/* Twice as many slots where n half fill them; the caller puts everything into the new ones. */
static bool grow_slots(learner *l, uint32_t **slots, size_t *mask, size_t n)
{
    if (*slots && 2 * n < *mask)
        return true;
    const size_t room = *slots ? 2 * (*mask + 1) : 1 << 12;
    uint32_t *more = gsi_new(l->heap, room * sizeof *more);
    if (!more)
        return false;
    memset(more, 0, room * sizeof *more);
    gsi_free(l->heap, *slots);
    *slots = more;
    *mask = room - 1;
    return true;
}

static uint32_t *word_slot(const learner *l, const char *text, size_t n)
{
    size_t i = (size_t)gsi_bytes_hash(text, n) & l->word_mask;
    for (; l->word_slots[i]; i = (i + 1) & l->word_mask) {
        const word *w = &l->words[l->word_slots[i] - 1];
        if (w->length == n && memcmp(w->text, text, n) == 0)
            break;
    }
    return &l->word_slots[i];
}

static uint32_t *pair_slot(const learner *l, uint32_t left, uint32_t right)
{
    size_t i = (size_t)gsi_pair_hash(left, right) & l->pair_mask;
    for (; l->pair_slots[i]; i = (i + 1) & l->pair_mask) {
        const pair *p = &l->pairs[l->pair_slots[i] - 1];
        if (p->left == left && p->right == right)
            break;
    }
    return &l->pair_slots[i];
}

static bool count_word(learner *l, const char *text, size_t n)
{
    uint32_t *slots = l->word_slots;
    if (!grow_slots(l, &l->word_slots, &l->word_mask, l->n_words))
        return false;
    if (slots != l->word_slots)
        for (size_t i = 0; i < l->n_words; i++)
            *word_slot(l, l->words[i].text, l->words[i].length) = (uint32_t)i + 1;
    uint32_t *slot = word_slot(l, text, n);
    if (*slot) {
        l->words[*slot - 1].count++;
        return true;
    }
    if (!gsi_grow(l->heap, &l->words, &l->words_room, l->n_words + 1, sizeof *l->words))
        return false;
    l->words[l->n_words++] = (word){.text = text, .length = (uint32_t)n, .count = 1};
    *slot = (uint32_t)l->n_words;
    return true;
}

/* The number of a pair; NONE: no memory. */
static uint32_t pair_of(learner *l, uint32_t left, uint32_t right)
{
    uint32_t *slots = l->pair_slots;
    if (!grow_slots(l, &l->pair_slots, &l->pair_mask, l->n_pairs))
        return NONE;
    if (slots != l->pair_slots)
        for (size_t i = 0; i < l->n_pairs; i++)
            *pair_slot(l, l->pairs[i].left, l->pairs[i].right) = (uint32_t)i + 1;
    uint32_t *slot = pair_slot(l, left, right);
    if (!*slot) {
        if (!gsi_grow(l->heap, &l->pairs, &l->pairs_room, l->n_pairs + 1, sizeof *l->pairs))
            return NONE;
        l->pairs[l->n_pairs++] = (pair){left, right, 0, NONE};
        *slot = (uint32_t)l->n_pairs;
    }
    return *slot - 1;
}

/* A word has this pair no longer. It had it, so the pair is there. */
static void less(learner *l, uint32_t left, uint32_t right, uint32_t in)
{
    l->pairs[*pair_slot(l, left, right) - 1].count -= (int64_t)l->words[in].count;
}

/* A word has this pair now. */
static bool more(learner *l, uint32_t left, uint32_t right, uint32_t in)
{
    const uint32_t number = pair_of(l, left, right);
    if (number == NONE)
        return false;
    pair *p = &l->pairs[number];
    p->count += (int64_t)l->words[in].count;
    if (p->words != NONE && l->nodes[p->words].word == in)
        return true;
    if (!gsi_grow(l->heap, &l->nodes, &l->nodes_room, l->n_nodes + 1, sizeof *l->nodes) ||
        !gsi_grow(l->heap, &l->touched, &l->touched_room, l->n_touched + 1, sizeof *l->touched))
        return false;
    l->nodes[l->n_nodes] = (node){in, p->words};
    p->words = (uint32_t)l->n_nodes++;
    l->touched[l->n_touched++] = number;
    return true;
}

/* ---- the heap ---- */

static bool before(const learner *l, waiting a, waiting b)
{
    const pair *x = &l->pairs[a.pair], *y = &l->pairs[b.pair];
    if (a.count != b.count)
        return a.count > b.count;
    return x->left != y->left ? x->left < y->left : x->right < y->right;
}

/* There must be room. */
static void put(learner *l, waiting x)
{
    size_t i = l->n_queue++;
    for (; i > 0 && before(l, x, l->queue[(i - 1) / 2]); i = (i - 1) / 2)
        l->queue[i] = l->queue[(i - 1) / 2];
    l->queue[i] = x;
}

static bool push(learner *l, waiting x)
{
    if (!gsi_grow(l->heap, &l->queue, &l->queue_room, l->n_queue + 1, sizeof *l->queue))
        return false;
    put(l, x);
    return true;
}

static waiting pop(learner *l)
{
    const waiting first = l->queue[0], x = l->queue[--l->n_queue];
    size_t i = 0;
    for (size_t child; (child = 2 * i + 1) < l->n_queue; i = child) {
        child += child + 1 < l->n_queue && before(l, l->queue[child + 1], l->queue[child]);
        if (!before(l, l->queue[child], x))
            break;
        l->queue[i] = l->queue[child];
    }
    l->queue[i] = x;
    return first;
}

static bool push_touched(learner *l)
{
    bool done = true;
    for (size_t i = 0; i < l->n_touched && done; i++) {
        const uint32_t p = l->touched[i];
        if (l->pairs[p].count > 0)
            done = push(l, (waiting){l->pairs[p].count, p});
    }
    l->n_touched = 0;
    return done;
}

/* ---- words and merges ---- */

static bool count_words(learner *l, const gs_text *texts, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const uint8_t *p = (const uint8_t *)texts[i].bytes;
        for (size_t at = 0; at < texts[i].length;) {
            const size_t length = gsi_word(p + at, p + texts[i].length);
            if (!count_word(l, texts[i].bytes + at, length))
                return false;
            at += length;
        }
    }
    return true;
}

static bool begin(learner *l)
{
    size_t all = 0;
    for (size_t i = 0; i < l->n_words; i++)
        all += l->words[i].length;
    l->ids = gsi_new(l->heap, (all + 1) * sizeof *l->ids);
    if (!l->ids)
        return false;
    size_t at = 0;
    for (size_t i = 0; i < l->n_words; i++) {
        word *w = &l->words[i];
        w->at = at;
        w->n = w->length;
        for (size_t k = 0; k < w->n; k++) {
            l->ids[at++] = l->t->of_byte[(uint8_t)w->text[k]];
            if (k > 0 && !more(l, (uint32_t)l->ids[at - 2], (uint32_t)l->ids[at - 1], (uint32_t)i))
                return false;
        }
    }
    return true;
}

static bool merge_in(learner *l, uint32_t in, uint32_t left, uint32_t right, uint32_t made)
{
    word *w = &l->words[in];
    int32_t *ids = l->ids + w->at;
    size_t n = 0; /* of what has been passed */
    bool done = true;
    for (size_t i = 0; i < w->n && done; i++) {
        if ((uint32_t)ids[i] != left || i + 1 == w->n || (uint32_t)ids[i + 1] != right) {
            ids[n++] = ids[i];
            continue;
        }
        if (n > 0) {
            const uint32_t previous = (uint32_t)ids[n - 1];
            less(l, previous, left, in);
            done = more(l, previous, made, in);
        }
        if (i + 2 < w->n && done) {
            const uint32_t next = (uint32_t)ids[i + 2];
            less(l, right, next, in);
            done = more(l, made, next, in);
        }
        ids[n++] = (int32_t)made;
        i++;
    }
    w->n = (uint32_t)n;
    return done;
}

/* The token of both; one that is there already is not made twice. GSI_NO_TOKEN: no memory. */
static int32_t join(learner *l, const pair *p)
{
    gs_tokenizer *t = l->t;
    const gsi_token a = t->tokens[p->left], b = t->tokens[p->right];
    const size_t n = (size_t)a.length + b.length;
    char *bytes = gsi_new(l->heap, n);
    if (!bytes)
        return GSI_NO_TOKEN;
    memcpy(bytes, t->bytes + a.at, a.length);
    memcpy(bytes + a.length, t->bytes + b.at, b.length);
    int32_t id = gsi_vocab_find(t, bytes, n, false);
    if (id < 0 && gsi_vocab_add(t, bytes, n, false))
        id = (int32_t)t->n - 1;
    gsi_free(l->heap, bytes);
    return id;
}

/* Two merges may make one token: more than this many are not learned. */
static size_t most_merges(size_t tokens) { return gsi_min_size(2 * tokens, GS_TOKENIZER_TOKENS); }

static bool learn(learner *l, size_t tokens, int64_t least)
{
    if (!begin(l) || !push_touched(l))
        return false;
    while (l->t->n < tokens && l->n_queue > 0 &&
           l->t->n_merges < most_merges(tokens)) { /* uncovered: each token twice */
        const waiting next = pop(l);
        const pair p = l->pairs[next.pair];
        if (p.count != next.count) {
            if (p.count > 0)
                put(l, (waiting){p.count, next.pair}); /* into the room that it had */
            continue;
        }
        if (p.count < least)
            break;
        const int32_t made = join(l, &p);
        if (made < 0)
            return false;
        if (!gsi_merge_add(l->t, p.left, p.right, (uint32_t)made))
            continue; /* it was merged before */
        for (uint32_t i = p.words; i != NONE; i = l->nodes[i].next)
            if (!merge_in(l, l->nodes[i].word, p.left, p.right, (uint32_t)made))
                return false;
        if (!push_touched(l))
            return false;
    }
    return true;
}

/* ---- all of it ---- */

/* Bytes in the order of their characters in files, which is GPT-2's. */
static bool add_bytes(gs_tokenizer *t)
{
    bool done = true;
    for (uint32_t code = 0; code < 256 + 68 && done; code++) {
        const int byte = gsi_byte_of_char(code);
        const char c = (char)byte;
        if (byte >= 0)
            done = gsi_vocab_add(t, &c, 1, false);
    }
    gsi_vocab_finish(t);
    return done;
}

static bool add_end(gs_tokenizer *t)
{
    static const char text[] = GSI_END_OF_TEXT;
    const size_t n = sizeof text - 1;
    t->added = gsi_new(&t->heap, sizeof *t->added);
    if (!t->added || !gsi_vocab_add(t, text, n, false))
        return false;
    t->added[0] = (gsi_added){.id = (int32_t)t->n - 1,
                              .at = t->tokens[t->n - 1].at,
                              .length = (uint32_t)n,
                              .first = (uint8_t)text[0],
                              .special = true};
    t->n_added = 1;
    gsi_added_finish(t);
    return true;
}

static gs_status check(const gs_tokenizer_config *c, const gs_text *texts, size_t n,
                       gs_error *error)
{
    size_t all = 0;
    if (c->tokens < 257 || c->tokens > GS_TOKENIZER_TOKENS)
        return gsi_fail(error, GS_ERANGE, "a tokenizer of %zu tokens: at least 257, at most %d",
                        c->tokens, GS_TOKENIZER_TOKENS);
    for (size_t i = 0; i < n; i++) {
        if (texts[i].length > 0 && !texts[i].bytes)
            return gsi_fail(error, GS_ENULL, "text %zu is missing", i);
        if (texts[i].length > INT32_MAX - all)
            return gsi_fail(error, GS_ESIZE,
                            "the texts have more than the %d bytes that can be "
                            "learned from",
                            INT32_MAX);
        all += texts[i].length;
    }
    return all > 0 ? GS_OK : gsi_fail(error, GS_ESIZE, "there is no text to learn from");
}

gs_status gs_tokenizer_train(gs_tokenizer **out, const gs_tokenizer_config *config,
                             const gs_text *texts, size_t n, const gs_alloc *alloc, gs_error *error)
{
    gs_tokenizer_config c;
    gs_tokenizer *t;
    if (!out || !config || (n > 0 && !texts))
        return gsi_fail(error, GS_ENULL, "there is nothing to learn a tokenizer from");
    *out = NULL;
    gs_status status = gsi_config(&c, sizeof c, config, "gs_tokenizer_config", error);
    if (status == GS_OK)
        status = check(&c, texts, n, error);
    if (status == GS_OK)
        status = gsi_tokenizer_new(&t, alloc, error);
    if (status != GS_OK)
        return status;
    learner l = {.heap = &t->heap, .t = t};
    const int64_t least = c.least == 0 ? 2 : c.least < INT64_MAX ? (int64_t)c.least : INT64_MAX;
    const bool done = gsi_vocab_reserve(t, c.tokens) &&
                      gsi_merges_reserve(t, most_merges(c.tokens)) && add_bytes(t) &&
                      count_words(&l, texts, n) && learn(&l, c.tokens - 1, least) && add_end(t);
    void *const blocks[] = {l.words, l.word_slots, l.ids,   l.pairs,
                            l.nodes, l.pair_slots, l.queue, l.touched};
    for (size_t i = 0; i < GSI_COUNT(blocks); i++)
        gsi_free(&t->heap, blocks[i]);
    if (!done) {
        gs_tokenizer_free(t);
        return gsi_fail(error, GS_ENOMEM, "no memory to learn a tokenizer");
    }
    *out = t;
    return GS_OK;
}

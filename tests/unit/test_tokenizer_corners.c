/* Tokenizers at their limits: each from both sides, pairs of files that do not fit, memory that
 * ends, and training against one that counts everything again for each merge. */
#include "test.h"

#include "gradscale/tokenizer.h"
#include "io/bpe/bpe.h"

#include "data_files.h"
#include "memory.h"

#include <stdarg.h>
#include <stdint.h>

#define HEAD   "{\"pre_tokenizer\":{\"type\":\"ByteLevel\"},\"added_tokens\":["
#define MODEL  "],\"model\":{\"vocab\":{"
#define MERGES "},\"merges\":["
#define END    "]}}"

enum { TOKEN = 1 << 16, ADDED = 1 << 12, VALUES = 1 << 20 };

/* ---- texts that are made ---- */

typedef struct page {
    char *text;
    size_t n, room;
} page;

static void put(page *p, const char *format, ...)
{
    va_list args;
    if (p->room - p->n < 256) {
        p->room = 2 * p->room + 4096;
        p->text = realloc(p->text, p->room);
    }
    va_start(args, format);
    p->n += (size_t)vsnprintf(p->text + p->n, p->room - p->n, format, args);
    va_end(args);
}

static void put_times(page *p, size_t n, const char *text)
{
    while (n-- > 0)
        put(p, "%s", text);
}

/* Reads it, and forgets it. wrong: a part of the error message, or NULL. */
static void check_page(page *p, gs_status expected, const char *wrong)
{
    gs_tokenizer *t = NULL;
    gs_error error = {0};
    const gs_status status = gs_tokenizer_read(&t, p->text, p->n, NULL, &error);
    CHECK_MSG(status == expected && (t != NULL) == (status == GS_OK), "%d: %s", (int)status,
              error.text);
    CHECK_MSG(!wrong || strstr(error.text, wrong), "%s: %s", wrong, error.text);
    gs_tokenizer_free(t);
    free(p->text);
    *p = (page){0};
}

/* ---- limits ---- */

static void test_token_length(void)
{
    page p = {0};
    for (size_t more = 0; more < 2; more++) {
        put(&p, HEAD MODEL "\"");
        put_times(&p, TOKEN + more, "a");
        put(&p, "\":0" MERGES END);
        check_page(&p, more ? GS_ESIZE : GS_OK, more ? "has a token of 65537 bytes: at most" : "");

        put(&p, HEAD "{\"id\":1,\"content\":\"");
        put_times(&p, TOKEN + more, "a");
        put(&p, "\"}" MODEL "\"a\":0" MERGES END);
        check_page(&p, more ? GS_ESIZE : GS_OK, NULL);
    }
    put(&p, HEAD MODEL "\"a\":0" MERGES "\"");
    put_times(&p, TOKEN + 1, "a");
    put(&p, " a\"" END);
    check_page(&p, GS_ESIZE, "has a token of 65537 bytes");

    put(&p, HEAD MODEL "\"a\":0,\""); /* both parts are tokens; what they make could be none */
    put_times(&p, TOKEN, "a");
    put(&p, "\":1" MERGES "[\"a\",\"");
    put_times(&p, TOKEN, "a");
    put(&p, "\"]" END);
    check_page(&p, GS_ENAME, "makes no token of the vocabulary");
}

static void test_counts(void)
{
    page p = {0};
    for (int more = 0; more < 2; more++) {
        put(&p, HEAD MODEL);
        for (int i = 0; i < GS_TOKENIZER_TOKENS + more; i++)
            put(&p, "%s\"%d\":%d", i ? "," : "", i, i);
        put(&p, MERGES END);
        check_page(&p, more ? GS_ESIZE : GS_OK, more ? "has 262145 tokens: at most 262144" : "");

        put(&p, HEAD);
        for (int i = 0; i < ADDED + more; i++)
            put(&p, "%s{\"id\":%d,\"content\":\"<%d>\"}", i ? "," : "", i + 1, i);
        put(&p, MODEL "\"a\":0" MERGES END);
        check_page(&p, more ? GS_ESIZE : GS_OK, more ? "has 4097 added tokens: at most 4096" : "");

        put(&p, HEAD MODEL "\"a\":0" MERGES "7");
        put_times(&p, GS_TOKENIZER_TOKENS - 1 + (size_t)more, ",7");
        put(&p, END);
        check_page(&p, more ? GS_ESIZE : GS_EFORMAT,
                   more ? "has 262145 merges: at most 262144" : "merge 1 is not two tokens");

        put(&p, "[0");
        put_times(&p, VALUES - 2 + (size_t)more, ",0");
        put(&p, "]");
        check_page(&p, more ? GS_ESIZE : GS_EFORMAT,
                   more ? "has more than 1048576 values" : "has no model");
    }
}

static void test_sizes(void)
{
    enum { MOST = 64 << 20 };
    gs_tokenizer *t = NULL;
    gs_error error = {0};
    char name[5000];
    int32_t id;
    size_t n;
    /* lengths are looked at before the bytes are */
    CHECK(gs_tokenizer_read(&t, "{}", MOST + 1, NULL, &error) == GS_ESIZE && !t);
    CHECK(strstr(error.text, "the tokenizer has 67108865 bytes: at most 67108864"));
    CHECK(gs_tokenizer_read(&t, NULL, 0, NULL, &error) == GS_ENULL);
    CHECK(gs_tokenizer_read(NULL, "{}", 2, NULL, &error) == GS_ENULL);
    CHECK(gs_tokenizer_open(NULL, "x", NULL, &error) == GS_ENULL);
    FILE *f = fopen(in_folder("large.json"), "w");
    CHECK(f && ftruncate(fileno(f), MOST + 1) == 0);
    fclose(f);
    CHECK(gs_tokenizer_open(&t, in_folder("large.json"), NULL, &error) == GS_ESIZE && !t);
    CHECK(strstr(error.text, "has 67108865 bytes: a tokenizer has at most 67108864"));
    CHECK(truncate(in_folder("large.json"), MOST) == 0);
    CHECK(gs_tokenizer_open(&t, in_folder("large.json"), NULL, &error) == GS_EFORMAT && !t);
    unlink(in_folder("large.json"));
    memset(name, 'x', sizeof name - 1);
    name[sizeof name - 1] = 0;
    CHECK(gs_tokenizer_open(&t, name, NULL, &error) == GS_ESIZE && !t);
    CHECK(strstr(error.text, "the path is too long"));

    const char text[] = "{\"pre_tokenizer\":{\"type\":\"ByteLevel\"},"
                        "\"model\":{\"vocab\":{\"a\":0},\"merges\":[]}}";
    CHECK(gs_tokenizer_read(&t, text, sizeof text - 1, NULL, &error) == GS_OK);
    CHECK(gs_tokenizer_encode(&id, 1, &n, t, "a", (size_t)INT32_MAX + 1, &error) == GS_ESIZE);
    CHECK(gs_tokenizer_encode(NULL, 1, &n, t, "a", 1, &error) == GS_ENULL);
    CHECK(gs_tokenizer_encode(&id, 1, NULL, t, "a", 1, &error) == GS_ENULL);
    CHECK(gs_tokenizer_encode(&id, 1, &n, t, NULL, 1, &error) == GS_ENULL);
    CHECK(gs_tokenizer_encode(NULL, 0, &n, t, "aaa", 3, &error) == GS_ESIZE && n == 3);
    CHECK(gs_tokenizer_text(NULL, 1, &n, t, GS_TOKENIZER_JSON, &error) == GS_ENULL);
    CHECK(gs_tokenizer_text(NULL, 0, &n, NULL, GS_TOKENIZER_JSON, &error) == GS_ENULL);
    CHECK(gs_tokenizer_size(NULL) == 0 && gs_tokenizer_size(t) == 1);
    gs_tokenizer_free(t);
}

/* ---- vocab.json and merges.txt ---- */

static void test_pairs_of_files(void)
{
    static const struct {
        const char *vocab, *merges, *wrong;
        gs_status status;
    } pairs[] = {
        {"{\"a\":0,\"b\":1,\"ab\":2}", "#version: 0.2\na b\n", "", GS_OK},
        {"{\"a\":0,\"b\":1,\"ab\":2}", "a b", "", GS_OK},
        {"{\"a\":0,\"b\":1,\"ab\":2}", "#version: 0.2\r\na b\r\n", "", GS_OK},
        {"{\"a\":0,\"b\":1,\"ab\":2}", "#vers b\na b\n", "merge 1 is of #vers", GS_ENAME},
        {"{\"a\":0,\"b\":1,\"ab\":2}", "a bbbbbbb\n", "merge 1 is of bbbbbbb", GS_ENAME},
        {"{\"a\":0,\"b\":1,\"ab\":2}", "a b\n#version: 0.2\n", "merge 2 is of #version", GS_ENAME},
        {"{\"a\":0,\"b\":1,\"ab\":2}", "a b\n\n", "merge 2 is not two tokens", GS_EFORMAT},
        {"{\"a\":0,\"b\":1,\"ab\":2}", "a \xFF\n", "is not UTF-8", GS_EFORMAT},
        {"{\"a\":0,\"b\":2,\"ab\":3}", "a b\n", "ids have holes", GS_ERANGE},
    };
    gs_tokenizer *t = NULL;
    gs_error error = {0};
    int32_t ids[4];
    size_t n = 0;
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        write_text("vocab.json", pairs[i].vocab);
        write_text("merges.txt", pairs[i].merges);
        const gs_status status = gs_tokenizer_open(&t, in_folder("vocab.json"), NULL, &error);
        CHECK_MSG(status == pairs[i].status && (!t || status == GS_OK), "%zu: %d %s", i,
                  (int)status, error.text);
        CHECK_MSG(status == GS_OK || strstr(error.text, pairs[i].wrong), "%zu: %s", i, error.text);
        if (status == GS_OK) {
            CHECK(gs_tokenizer_encode(ids, 4, &n, t, "aab", 3, &error) == GS_OK && n == 2);
            CHECK(ids[0] == 0 && ids[1] == 2 && gs_tokenizer_end(t) == GSI_NO_TOKEN);
        }
        gs_tokenizer_free(t);
        t = NULL;
    }
    write_text("vocab.json", pairs[0].vocab);
    unlink(in_folder("merges.txt"));
    CHECK(gs_tokenizer_open(&t, in_folder("vocab.json"), NULL, &error) == GS_EIO && !t);
    CHECK(strstr(error.text, "merges.txt"));
    unlink(in_folder("vocab.json"));
    write_text("alone.json", "{\"a\":0}");
    CHECK(gs_tokenizer_open(&t, in_folder("alone.json"), NULL, &error) == GS_EFORMAT && !t);
    CHECK(strstr(error.text, "has a vocabulary alone"));
    static const char *const others[] = {"{}", "[0]", "0", "x"};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        write_text("alone.json", others[i]);
        CHECK(gs_tokenizer_open(&t, in_folder("alone.json"), NULL, &error) == GS_EFORMAT && !t);
        CHECK_MSG(strstr(error.text, others[i][0] == 'x' ? "is no JSON" : "has no model"), "%s: %s",
                  others[i], error.text);
    }
    unlink(in_folder("alone.json"));
}

/* ---- added tokens ---- */

/* Whatever the order in the file: those that are not normalized first, the longest first. */
static void test_added_order(void)
{
    static const char text[] = HEAD "{\"id\":1,\"content\":\"<n>\",\"normalized\":true},"
                                    "{\"id\":2,\"content\":\"<x>\",\"lstrip\":true},"
                                    "{\"id\":3,\"content\":\"<y>\"},"
                                    "{\"id\":4,\"content\":\"<x><\"},"
                                    "{\"id\":5,\"content\":\"<m>\",\"normalized\":true},"
                                    "{\"id\":6,\"content\":\"\xC3\xA9\"},"
                                    "{\"id\":7,\"content\":\"b c\"}" MODEL "\"a\":0" MERGES END;
    static const struct {
        const char *text;
        int32_t ids[4];
        size_t n;
    } cases[] = {{"<y><n><x>", {3, 1, 2}, 3},
                 {"<x><y>", {4}, 0},
                 {"<m>a<n>", {5, 0, 1}, 3},
                 {"a <x>", {0, 2}, 2},
                 {"\xC3\xA9"
                  "b c",
                  {6, 7},
                  2}};
    gs_tokenizer *t = NULL, *again = NULL;
    gs_error error = {0};
    int32_t ids[16];
    size_t n;
    CHECK(gs_tokenizer_read(&t, text, sizeof text - 1, NULL, &error) == GS_OK);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const gs_status status =
            gs_tokenizer_encode(ids, 16, &n, t, cases[i].text, strlen(cases[i].text), &error);
        if (cases[i].n == 0) { /* the longest is taken, and y> has no tokens */
            CHECK(status == GS_ENAME && strstr(error.text, "the byte 0x79"));
            continue;
        }
        CHECK_MSG(status == GS_OK && n == cases[i].n &&
                      memcmp(ids, cases[i].ids, n * sizeof *ids) == 0,
                  "%s: %zu %s", cases[i].text, n, error.text);
    }
    /* bytes that are no character are no space that could be stripped */
    CHECK(gs_tokenizer_encode(ids, 16, &n, t, "\x80\x80\x80\x80\x80\x80<x>", 9, &error) ==
          GS_ENAME);
    CHECK(strstr(error.text, "the byte 0x80"));
    char json[4096];
    CHECK(gs_tokenizer_text(json, sizeof json, &n, t, GS_TOKENIZER_JSON, &error) == GS_OK);
    CHECK(gs_tokenizer_read(&again, json, n, NULL, &error) == GS_OK);
    CHECK(gs_tokenizer_size(again) == 8 && gs_tokenizer_end(again) == GSI_NO_TOKEN);
    gs_tokenizer_free(again);
    gs_tokenizer_free(t);
}

/* Added tokens that the vocabulary has, the later ones first; and no list of them. */
static void test_added_backwards(void)
{
    static const char text[] = HEAD "{\"id\":3,\"content\":\"<c>\"},{\"id\":1,\"content\":\"<a>\"},"
                                    "{\"id\":2,\"content\":\"<b>\"}" MODEL
                                    "\"a\":0,\"<a>\":1,\"<b>\":2,\"<c>\":3" MERGES END;
    static const char other[] = "{\"pre_tokenizer\":{\"type\":\"ByteLevel\"},\"added_tokens\":7,"
                                "\"model\":{\"vocab\":{\"a\":0" MERGES END;
    gs_tokenizer *t = NULL;
    gs_error error = {0};
    int32_t ids[16];
    size_t n;
    CHECK(gs_tokenizer_read(&t, text, sizeof text - 1, NULL, &error) == GS_OK);
    CHECK(gs_tokenizer_encode(ids, 16, &n, t, "<b>a<c><a>", 10, &error) == GS_OK && n == 4);
    CHECK(ids[0] == 2 && ids[1] == 0 && ids[2] == 3 && ids[3] == 1);
    gs_tokenizer_free(t);
    CHECK_MSG(gs_tokenizer_read(&t, other, sizeof other - 1, NULL, &error) == GS_OK, "%s",
              error.text);
    CHECK(gs_tokenizer_size(t) == 1);
    gs_tokenizer_free(t);
}

/* One token is U+65E5, the other the three characters that stand for its bytes: two tokens with the
 * same bytes. Only the second is made of bytes. */
static void test_twins(void)
{
    static const char *const orders[] = {
        HEAD MODEL "\"\u65e5\":0,\"\u00e6\":1,\"\u0139\":2,\"\u00a5\":3,\"\u00e6\u0139\":4,"
                   "\"\u00e6\u0139\u00a5\":5" MERGES
                   "\"\u00e6 \u0139\",\"\u00e6\u0139 \u00a5\"" END,
        HEAD MODEL "\"\u00e6\u0139\u00a5\":5,\"\u00e6\":1,\"\u0139\":2,\"\u00a5\":3,"
                   "\"\u00e6\u0139\":4,\"\u65e5\":0" MERGES
                   "\"\u00e6 \u0139\",\"\u00e6\u0139 \u00a5\"" END};
    for (size_t i = 0; i < 2; i++) {
        gs_tokenizer *t = NULL;
        gs_error error = {0};
        int32_t ids[4];
        size_t n, length;
        CHECK_MSG(gs_tokenizer_read(&t, orders[i], strlen(orders[i]), NULL, &error) == GS_OK, "%s",
                  error.text);
        CHECK(gs_tokenizer_encode(ids, 4, &n, t, "\xE6\x97\xA5", 3, &error) == GS_OK && n == 1);
        CHECK_MSG(ids[0] == 5, "%d", (int)ids[0]);
        for (int32_t id = 0; id <= 5; id += 5)
            CHECK(memcmp(gs_tokenizer_token(t, id, &length), "\xE6\x97\xA5", 3) == 0 &&
                  length == 3);
        gs_tokenizer_free(t);
    }
}

/* A part that no merge makes is told as the file writes it, and cut. */
static void test_parts_that_nothing_makes(void)
{
    static const struct {
        const char *letter, *wrong;
        size_t n;
    } parts[] = {{"x", "merge 1 is of xxx, which no merge makes", 3},
                 {"\xC4\xA0", "merge 1 is of \xC4\xA0\xC4\xA0, which no merge makes", 2},
                 {"x", "xxx..., which no merge makes", 500},
                 {"\xC4\xA0", "\xC4\xA0..., which no merge makes", 500}};
    page p = {0};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        for (int left = 0; left < 2; left++) {
            put(&p, HEAD MODEL "\"a\":0,\"");
            put_times(&p, parts[i].n, parts[i].letter);
            put(&p, "\":1,\"%s", left ? "" : "a");
            put_times(&p, parts[i].n, parts[i].letter);
            put(&p, "%s\":2" MERGES "[\"%s", left ? "a" : "", left ? "" : "a\",\"");
            put_times(&p, parts[i].n, parts[i].letter);
            put(&p, "%s\"]" END, left ? "\",\"a" : "");
            check_page(&p, GS_ENAME, parts[i].wrong);
        }
}

/* Many of them, in one table. */
static void test_many_twins(void)
{
    enum { MANY = 500 };
    page p = {0};
    gs_tokenizer *t = NULL;
    gs_error error = {0};
    uint8_t utf8[MANY][3];
    put(&p, HEAD MODEL);
    for (unsigned i = 0; i < MANY; i++) {
        const unsigned code = 0x4E00 + 7 * i;
        const uint8_t of[3] = {(uint8_t)(0xE0 | code >> 12), (uint8_t)(0x80 | (code >> 6 & 63)),
                               (uint8_t)(0x80 | (code & 63))};
        memcpy(utf8[i], of, 3);
        put(&p, "%s\"\\u%04x\":%u,\"\\u%04x\\u%04x\\u%04x\":%u", i ? "," : "", code, 2 * i,
            (unsigned)gsi_char_of_byte(of[0]), (unsigned)gsi_char_of_byte(of[1]),
            (unsigned)gsi_char_of_byte(of[2]), 2 * i + 1);
    }
    put(&p, MERGES END);
    CHECK_MSG(gs_tokenizer_read(&t, p.text, p.n, NULL, &error) == GS_OK, "%s", error.text);
    for (int i = 0; i < 2 * MANY; i++)
        CHECK(gsi_vocab_find(t, (const char *)utf8[i / 2], 3, i % 2 == 0) == i);
    gs_tokenizer_free(t);
    free(p.text);
}

/* A word has its tokens from memory up to 22 bytes, is merged in place up to 128, and takes memory
 * beyond: the same tokens each time, and when it comes again. */
static void test_word_lengths(void)
{
    static const char text[] =
        HEAD MODEL "\"a\":0,\"b\":1,\"ab\":2,\"abab\":3" MERGES "\"a b\",\"ab ab\"" END;
    gs_tokenizer *t = NULL;
    gs_error error = {0};
    char word[300];
    int32_t ids[300];
    size_t n;
    CHECK(gs_tokenizer_read(&t, text, sizeof text - 1, NULL, &error) == GS_OK);
    for (size_t length = 1; length <= sizeof word; length++) {
        for (size_t i = 0; i < length; i++)
            word[i] = "ab"[i % 2];
        for (int again = 0; again < 2; again++) {
            CHECK(gs_tokenizer_encode(ids, 300, &n, t, word, length, &error) == GS_OK);
            const size_t rest = length % 4;
            CHECK_MSG(n == length / 4 + (rest > 1) + rest % 2, "%zu: %zu", length, n);
            for (size_t i = 0; i < n; i++)
                CHECK(ids[i] == (i < length / 4 ? 3 : rest > 1 && i == length / 4 ? 2 : 0));
        }
    }
    gs_tokenizer_free(t);
}

/* ---- training ---- */

enum { LETTERS = 26, WORDS = 6000, MADE = 60, IDS = 257 + MADE };

/* Words of small letters; the first has no blank before it. */
static size_t random_words(char *text, size_t words)
{
    uint32_t random = 12345;
    size_t n = 0;
    for (size_t w = 0; w < words; w++) {
        if (w > 0)
            text[n++] = ' ';
        const size_t length = 2 + w % 5;
        for (size_t k = 0; k < length; k++) {
            random = random * 1664525 + 1013904223;
            text[n++] = (char)('a' + (random >> 24) % LETTERS * ((random >> 16) % LETTERS) / 25);
        }
    }
    return n;
}

/* Merges by counting all pairs anew each time. ids[n], -1 between words. */
static void train_naive(int32_t *ids, size_t n, uint32_t (*made)[2], size_t merges)
{
    static uint32_t counts[IDS][IDS];
    for (size_t m = 0; m < merges; m++) {
        size_t left = 0, right = 0, to = 0;
        memset(counts, 0, sizeof counts);
        for (size_t i = 0; i + 1 < n; i++)
            if (ids[i] >= 0 && ids[i + 1] >= 0)
                counts[ids[i]][ids[i + 1]]++;
        for (size_t i = 0; i < IDS; i++)
            for (size_t k = 0; k < IDS; k++)
                if (counts[i][k] > counts[left][right]) {
                    left = i;
                    right = k;
                }
        made[m][0] = (uint32_t)left;
        made[m][1] = (uint32_t)right;
        for (size_t i = 0; i < n; i++) {
            const bool here = i + 1 < n && ids[i] == (int32_t)left && ids[i + 1] == (int32_t)right;
            ids[to++] = here ? (int32_t)(256 + m) : ids[i];
            i += here;
        }
        n = to;
    }
}

static void test_many_words(void)
{
    static char text[WORDS * 8];
    static int32_t ids[WORDS * 9];
    uint32_t made[MADE][2];
    const gs_tokenizer_config config = {.size = sizeof config, .tokens = IDS};
    const gs_text texts = {text, random_words(text, WORDS)};
    gs_tokenizer *t = NULL;
    gs_error error = {0};
    CHECK(gs_tokenizer_train(&t, &config, &texts, 1, NULL, &error) == GS_OK);
    CHECK(t->n_merges == MADE);
    size_t n = 0;
    for (size_t i = 0; i < texts.length; i++) {
        if (text[i] == ' ')
            ids[n++] = -1;
        ids[n++] = t->of_byte[(uint8_t)text[i]];
    }
    train_naive(ids, n, made, MADE);
    for (size_t m = 0; m < MADE && m < t->n_merges; m++)
        CHECK_MSG(t->merges[m].left == made[m][0] && t->merges[m].right == made[m][1],
                  "merge %zu: %u %u, counted %u %u", m, t->merges[m].left, t->merges[m].right,
                  made[m][0], made[m][1]);
    gs_tokenizer_free(t);
}

static void test_train_config(void)
{
    gs_tokenizer_config config = {.size = sizeof config, .tokens = 300};
    gs_text texts[2] = {{"ab ab", 5}, {"x", 1}};
    gs_tokenizer *t = NULL;
    gs_error error = {0};
    CHECK(gs_tokenizer_train(NULL, &config, texts, 1, NULL, &error) == GS_ENULL);
    CHECK(gs_tokenizer_train(&t, NULL, texts, 1, NULL, &error) == GS_ENULL);
    CHECK(gs_tokenizer_train(&t, &config, NULL, 1, NULL, &error) == GS_ENULL);
    CHECK(gs_tokenizer_train(&t, &config, NULL, 0, NULL, &error) == GS_ESIZE);
    texts[1].bytes = NULL;
    CHECK(gs_tokenizer_train(&t, &config, texts, 2, NULL, &error) == GS_ENULL);
    CHECK(strstr(error.text, "text 1 is missing"));
    texts[1] = (gs_text){"x", INT32_MAX - 4}; /* 5 and these are one too many; none is read */
    CHECK(gs_tokenizer_train(&t, &config, texts, 2, NULL, &error) == GS_ESIZE);
    CHECK(strstr(error.text, "can be learned from"));
    config.tokens = GS_TOKENIZER_TOKENS + 1;
    CHECK(gs_tokenizer_train(&t, &config, texts, 1, NULL, &error) == GS_ERANGE && !t);
    config.tokens = 300;
    static const struct {
        uint64_t least;
        size_t merges;
    } leasts[] = {{0, 2}, {1, 2}, {2, 2}, {3, 0}, {UINT64_MAX, 0}};
    for (size_t i = 0; i < sizeof leasts / sizeof leasts[0]; i++) {
        config.least = leasts[i].least;
        texts[0] = (gs_text){"ab ab ab", 8};
        if (leasts[i].least == 3)
            texts[0] = (gs_text){"ab ab", 5};
        CHECK(gs_tokenizer_train(&t, &config, texts, 1, NULL, &error) == GS_OK);
        CHECK_MSG(t->n_merges == leasts[i].merges, "least %llu: %zu merges",
                  (unsigned long long)leasts[i].least, t->n_merges);
        gs_tokenizer_free(t);
    }
}

/* ---- memory ---- */

static const char small_json[] =
    HEAD "{\"id\":3,\"content\":\"<x>\"}" MODEL "\"a\":0,\"b\":1,\"ab\":2" MERGES "\"a b\"" END;

/* A long word, and then one that is not as long; a byte that has no token in one of them. */
static gs_status use(const gs_alloc *alloc)
{
    static char text[600];
    static int32_t ids[600];
    gs_tokenizer *t = NULL;
    gs_error error = {0};
    size_t n = 0;
    gs_status status = gs_tokenizer_read(&t, small_json, sizeof small_json - 1, alloc, &error);
    if (status == GS_OK) {
        memset(text, 'a', sizeof text);
        memcpy(text + 300, "<x>", 3);
        text[599] = 'b';
        status = gs_tokenizer_encode(ids, 600, &n, t, text, 600, &error);
        CHECK(status == GS_ENOMEM || (status == GS_OK && n == 597 && ids[300] == 3));
    }
    if (status == GS_OK) {
        text[400] = 'z';
        status = gs_tokenizer_encode(ids, 600, &n, t, text, 600, &error);
        CHECK(status == GS_ENOMEM || (status == GS_ENAME && strstr(error.text, "the byte 0x7a")));
    }
    if (status == GS_ENAME) {
        char json[1024];
        status = gs_tokenizer_text(json, sizeof json, &n, t, GS_TOKENIZER_JSON, &error);
    }
    CHECK(status == GS_OK || (status == GS_ENOMEM && error.text[0]));
    gs_tokenizer_free(t);
    return status;
}

static gs_status train_of(size_t words, size_t tokens, const gs_alloc *alloc)
{
    static char text[8 * WORDS];
    const gs_tokenizer_config config = {.size = sizeof config, .tokens = tokens, .least = 1};
    const gs_text texts = {text, random_words(text, words)};
    gs_tokenizer *t = NULL;
    gs_error error = {0};
    const gs_status status = gs_tokenizer_train(&t, &config, &texts, 1, alloc, &error);
    CHECK(status == GS_OK ? t != NULL : !t && error.text[0]);
    gs_tokenizer_free(t);
    return status;
}

static gs_status train_some(const gs_alloc *alloc) { return train_of(400, 330, alloc); }
static gs_status train_few(const gs_alloc *alloc) { return train_of(64, 330, alloc); }
static gs_status train_none(const gs_alloc *alloc) { return train_of(3, 257, alloc); }

/* Tokens of all lengths, so that each is once that for which memory ends. */
static gs_status read_lengths(const gs_alloc *alloc)
{
    gs_status status = GS_OK;
    for (size_t length = 1; length < 64 && status == GS_OK; length++) {
        page p = {0};
        gs_tokenizer *t = NULL;
        gs_error error = {0};
        put(&p, HEAD "{\"id\":1,\"content\":\"");
        put_times(&p, length, "<");
        put(&p, "\"}" MODEL "\"a\":0" MERGES END);
        status = gs_tokenizer_read(&t, p.text, p.n, alloc, &error);
        CHECK(status == GS_OK ? t != NULL : !t && error.text[0]);
        gs_tokenizer_free(t);
        free(p.text);
    }
    return status;
}

static gs_status open_pair(const gs_alloc *alloc)
{
    gs_tokenizer *t = NULL;
    gs_error error = {0};
    const gs_status status = gs_tokenizer_open(&t, in_folder("vocab.json"), alloc, &error);
    CHECK(status == GS_OK ? t != NULL : !t && error.text[0]);
    gs_tokenizer_free(t);
    return status;
}

static void test_no_memory(void)
{
    gs_status (*const users[])(const gs_alloc *) = {use,        train_some, train_few,
                                                    train_none, open_pair,  read_lengths};
    write_text("vocab.json", "{\"a\":0,\"b\":1,\"ab\":2,\"<|endoftext|>\":3}");
    write_text("merges.txt", "a b\n");
    for (size_t i = 0; i < 2 * sizeof users / sizeof users[0]; i++)
        for (size_t at = 1, made = 0; !made; at++) {
            books b = {.fail_at = i % 2 ? 0 : at, .fail_from = i % 2 ? at : 0};
            const gs_alloc hook = books_hook(&b);
            const gs_status status = users[i / 2](&hook);
            made = b.calls < at;
            CHECK(status == GS_OK || (status == GS_ENOMEM && !made)); /* some can be done without */
            CHECK(b.blocks == 0 && !b.wrong);
        }
    unlink(in_folder("vocab.json"));
    unlink(in_folder("merges.txt"));
}

TESTS({"token_length", test_token_length}, {"counts", test_counts}, {"sizes", test_sizes},
      {"pairs_of_files", test_pairs_of_files}, {"added_order", test_added_order},
      {"added_backwards", test_added_backwards}, {"twins", test_twins},
      {"many_twins", test_many_twins}, {"parts_that_nothing_makes", test_parts_that_nothing_makes},
      {"word_lengths", test_word_lengths}, {"many_words", test_many_words},
      {"train_config", test_train_config}, {"no_memory", test_no_memory})

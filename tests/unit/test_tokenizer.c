/* Tokenizers: ids recorded from Hugging Face's tokenizers, files that lie, texts of any bytes. */
#include "test.h"

#include "gradscale/tokenizer.h"
#include "io/bpe/bpe.h"
#include "io/bpe/unicode.h"
#include "memory.h"

#include <stdbool.h>
#include <sys/stat.h>
#include <unistd.h>

#define FOLDER "tests/data/tokenizer/"

enum { LONGEST = 1 << 14 };

static gs_tokenizer *opened(const char *path)
{
    gs_tokenizer *t = NULL;
    gs_error error = {0};
    const gs_status status = gs_tokenizer_open(&t, path, NULL, &error);
    CHECK_MSG(status == GS_OK, "%s", error.text);
    return t;
}

static char *text_of(const gs_tokenizer *t, gs_tokenizer_file file)
{
    size_t n = 0;
    CHECK(gs_tokenizer_text(NULL, 0, &n, t, file, NULL) == GS_ESIZE);
    char *text = malloc(n + 1);
    CHECK(gs_tokenizer_text(text, n + 1, NULL, t, file, NULL) == GS_OK && strlen(text) == n);
    return text;
}

/* ---- what others recorded ---- */

static size_t bytes_of(char *out, const char *hex)
{
    size_t n = 0;
    for (; hex[0] != '-' && hex[0] && hex[1]; hex += 2) {
        unsigned byte = 0;
        sscanf(hex, "%2x", &byte);
        out[n++] = (char)byte;
    }
    return n;
}

/* Decoded, the ids are the text; but for white space that an added token takes, or a blank before
 * the text. */
static void check_line(gs_tokenizer *t, const char *hex, char *numbers, bool exact)
{
    static char text[LONGEST], back[4 * LONGEST];
    static int32_t ids[LONGEST];
    const size_t length = bytes_of(text, hex);
    size_t n = 0, i = 0, used = 0, bytes;
    gs_error error = {0};
    CHECK(gs_tokenizer_encode(ids, LONGEST, &n, t, text, length, &error) == GS_OK);
    bool same = true;
    for (char *word = strtok(numbers, " \n"); word; word = strtok(NULL, " \n"), i++)
        same &= i < n && atoi(word) == ids[i];
    CHECK_MSG(same && i == n, "%.80s: %zu tokens, %zu recorded", hex, n, i);
    for (i = 0; i < n; i++) {
        const char *token = gs_tokenizer_token(t, ids[i], &bytes);
        memcpy(back + used, token, bytes);
        used += bytes;
    }
    CHECK_MSG(!exact || (used == length && memcmp(back, text, used) == 0), "%.80s", hex);
}

static void check_vectors(const char *path, const char *name, bool exact)
{
    static char line[1 << 16];
    gs_tokenizer *t = opened(path);
    FILE *f = fopen(FOLDER "vectors.txt", "r");
    int lines = 0;
    CHECK(f != NULL);
    while (t && f && fgets(line, sizeof line, f)) {
        char *hex = strchr(line, ' ') + 1, *numbers = hex + strcspn(hex, " \n");
        if (strncmp(line, name, strlen(name)) != 0)
            continue;
        if (*numbers)
            *numbers++ = 0;
        check_line(t, hex, numbers, exact);
        lines++;
    }
    CHECK(lines > 500);
    if (f)
        fclose(f);
    gs_tokenizer_free(t);
}

static void test_vectors(void)
{
    check_vectors(FOLDER "plain", "plain", true);
    check_vectors(FOLDER "plain/tokenizer.json", "plain", true);
    check_vectors(FOLDER "plain/vocab.json", "plain", true);
    check_vectors(FOLDER "added.json", "added", false);
}

static void test_classes(void)
{
    char recorded[32] = "", found[32];
    FILE *f = fopen(FOLDER "classes.txt", "r");
    CHECK(f && fgets(recorded, 17, f));
    fclose(f);
    uint64_t h = 0xCBF29CE484222325;
    for (uint32_t code = 0; code < 0x110000; code++)
        if (code < 0xD800 || code >= 0xE000)
            h = (h ^ gsi_char_class_of(code)) * 0x100000001B3;
    snprintf(found, sizeof found, "%016llx", (unsigned long long)h);
    CHECK_MSG(strcmp(found, recorded) == 0, "%s, recorded %s", found, recorded);
}

/* ---- the same by other ways ---- */

/* What is written is read again to the same text, and to the same ids. */
static void test_text(void)
{
    static const char *const paths[] = {FOLDER "plain", FOLDER "added.json"};
    for (size_t i = 0; i < 2; i++) {
        gs_tokenizer *t = opened(paths[i]), *again = NULL;
        char *first = text_of(t, GS_TOKENIZER_JSON);
        CHECK(gs_tokenizer_read(&again, first, strlen(first), NULL, NULL) == GS_OK);
        char *second = text_of(again, GS_TOKENIZER_JSON);
        CHECK(strcmp(first, second) == 0);
        CHECK(gs_tokenizer_size(t) == gs_tokenizer_size(again));
        CHECK(gs_tokenizer_end(t) >= 0 && gs_tokenizer_end(t) == gs_tokenizer_end(again));
        gs_tokenizer_free(t);
        gs_tokenizer_free(again);
        free(first);
        free(second);
    }
}

static void test_files(void)
{
    static const char *const names[] = {"vocab.json", "merges.txt"};
    char folder[64], path[128];
    gs_tokenizer *t = opened(FOLDER "plain");
    char *whole = text_of(t, GS_TOKENIZER_JSON);
    snprintf(folder, sizeof folder, "/tmp/gs_test_tokenizer_%ld", (long)getpid());
    mkdir(folder, 0777);
    for (size_t i = 0; i < 2; i++) {
        char *text = text_of(t, (gs_tokenizer_file)(GS_VOCAB_JSON + (int)i));
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        FILE *f = fopen(path, "w");
        fputs(text, f);
        fclose(f);
        free(text);
    }
    gs_tokenizer *again = opened(folder);
    char *second = text_of(again, GS_TOKENIZER_JSON);
    CHECK(strcmp(whole, second) == 0);
    for (size_t i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        remove(path);
    }
    rmdir(folder);
    free(whole);
    free(second);
    gs_tokenizer_free(t);
    gs_tokenizer_free(again);
}

/* Bytes that are not UTF-8 come back as they were, and are no letters. */
static void test_any_bytes(void)
{
    static const char mixed[] = "the 1\xC3\xA9\xE2\x82\xF0\x9Fxyz'\n";
    gs_tokenizer *t = opened(FOLDER "plain");
    char text[512];
    int32_t ids[600];
    uint32_t random = 1;
    for (int round = 0; round < 2000; round++) {
        size_t n = 0, used = 0, bytes;
        const size_t length = 1 + (size_t)round % sizeof text;
        for (size_t i = 0; i < length; i++) {
            random = random * 1664525 + 1013904223;
            text[i] = round % 3 ? (char)(random >> 24) : mixed[random >> 8 & 15];
        }
        CHECK(gs_tokenizer_encode(ids, 600, &n, t, text, length, NULL) == GS_OK);
        for (size_t i = 0; i < n; i++) {
            const char *token = gs_tokenizer_token(t, ids[i], &bytes);
            CHECK(used + bytes <= length && memcmp(text + used, token, bytes) == 0);
            used += bytes;
        }
        CHECK(used == length);
    }
    const uint8_t lone[] = "a\xE4z \xC3", surrogate[] = "\xED\xA0\x80";
    CHECK(gsi_word(lone, lone + 5) == 1 && gsi_word(lone + 1, lone + 5) == 1);
    CHECK(gsi_word(lone + 3, lone + 5) == 2); /* the blank and what is cut */
    CHECK(gsi_word(surrogate, surrogate + 3) == 3);
    gs_tokenizer_free(t);
}

/* A long word by the heap, and by looking at every pair again and again. */
static void test_long_words(void)
{
    gs_tokenizer *t = opened(FOLDER "plain");
    enum { N = 700 };
    static int32_t ids[N], slow[N];
    uint32_t random = 7;
    for (int round = 0; round < 50; round++) {
        size_t n = N, left = N;
        for (size_t i = 0; i < N; i++) {
            random = random * 1664525 + 1013904223;
            ids[i] = slow[i] = t->of_byte[(uint8_t) "theraniuo  "[(random >> 16) % 11]];
        }
        CHECK(gsi_merge_word(t, ids, &n));
        for (;;) {
            size_t at = 0;
            uint32_t least = GSI_NO_RANK, rank;
            for (size_t i = 0; i + 1 < left; i++)
                if ((rank = gsi_merge_find(t, (uint32_t)slow[i], (uint32_t)slow[i + 1])->rank) <
                    least) {
                    least = rank;
                    at = i;
                }
            if (least == GSI_NO_RANK)
                break;
            slow[at] = (int32_t)t->merges[least].id;
            memmove(slow + at + 1, slow + at + 2, (left - at - 2) * sizeof *slow);
            left--;
        }
        CHECK(n == left && n < N && memcmp(ids, slow, n * sizeof *ids) == 0);
    }
    gs_tokenizer_free(t);
}

static void test_room(void)
{
    gs_tokenizer *t = opened(FOLDER "plain");
    int32_t ids[4] = {-1, -1, -1, -1};
    size_t n, length;
    gs_error error = {0};
    CHECK(gs_tokenizer_encode(ids, 2, &n, t, "@#@#@#", 6, &error) == GS_ESIZE && n > 2);
    CHECK(ids[0] >= 0 && ids[1] >= 0 && ids[2] == -1);
    CHECK(gs_tokenizer_encode(NULL, 0, &n, t, NULL, 0, &error) == GS_OK && n == 0);
    CHECK(gs_tokenizer_encode(ids, 4, &n, NULL, "x", 1, &error) == GS_ENULL);
    CHECK(!gs_tokenizer_token(t, -1, &length) && !gs_tokenizer_token(t, 500, &length));
    CHECK(gs_tokenizer_token(t, 499, &length) && length > 1);
    gs_tokenizer_free(t);
    gs_tokenizer_free(NULL);
}

/* The words remembered grow with what is tokenized: a short text takes little memory, a growth that
 * fails is no error, and no size of the table changes a token. */
static void test_remembered(void)
{
    enum { TEXTS = 300, LENGTH = 240, EARLY = 40 };
    books b = {0}, none = {0};
    const gs_alloc hook = books_hook(&b), failing = books_hook(&none);
    gs_tokenizer *t, *poor, *fresh = opened(FOLDER "plain");
    gs_error error = {0};
    int32_t ids[LENGTH], expected[LENGTH];
    char text[LENGTH];
    size_t n, m;
    CHECK(gs_tokenizer_open(&t, FOLDER "plain", &hook, &error) == GS_OK);
    CHECK(gs_tokenizer_open(&poor, FOLDER "plain", &failing, &error) == GS_OK);
    size_t before = b.bytes;
    CHECK(gs_tokenizer_encode(ids, LENGTH, &n, t, "the cat", 7, &error) == GS_OK);
    CHECK(b.bytes - before < 8192);
    CHECK(gs_tokenizer_encode(ids, LENGTH, &n, poor, "the cat", 7, &error) == GS_OK);
    none.fail_from = none.calls + 1;
    for (unsigned i = 0; i < TEXTS; i++) {
        for (size_t k = 0; k < LENGTH; k++) /* words that come again, sooner or later */
            text[k] = k % 6 == 5 ? ' ' : (char)('a' + (i % EARLY * 7 + k * k) % 26);
        CHECK(gs_tokenizer_encode(expected, LENGTH, &m, fresh, text, LENGTH, &error) == GS_OK);
        CHECK(gs_tokenizer_encode(ids, LENGTH, &n, t, text, LENGTH, &error) == GS_OK);
        CHECK(n == m && memcmp(ids, expected, n * sizeof *ids) == 0);
        CHECK(gs_tokenizer_encode(ids, LENGTH, &n, poor, text, LENGTH, &error) == GS_OK);
        CHECK(n == m && memcmp(ids, expected, n * sizeof *ids) == 0);
        if (i % EARLY == 0) { /* one that remembers nothing */
            gs_tokenizer_free(fresh);
            fresh = opened(FOLDER "plain");
        }
    }
    before = b.bytes;
    for (unsigned i = 0; i < TEXTS; i++)
        CHECK(gs_tokenizer_encode(ids, LENGTH, &n, t, text, LENGTH, &error) == GS_OK);
    CHECK(b.bytes == before && b.bytes < (3u << 20)); /* and no further */
    gs_tokenizer_free(t);
    gs_tokenizer_free(poor);
    gs_tokenizer_free(fresh);
    CHECK(b.blocks == 0 && none.blocks == 0 && !b.wrong && !none.wrong);
}

/* ---- training ---- */

static void test_train(void)
{
    static const char text[] = "abababab abab cab cab cab xyz";
    const gs_text texts[] = {{text, sizeof text - 1}, {NULL, 0}, {"ab", 2}};
    gs_tokenizer_config config = {.size = sizeof config, .tokens = 300};
    gs_tokenizer *t = NULL, *again = NULL;
    gs_error error = {0};
    size_t n;
    CHECK(gs_tokenizer_train(&t, &config, texts, 3, NULL, &error) == GS_OK);
    /* ab 10 times, then " c" 3 times before "abab" 3 times: of equals the lower ids */
    CHECK(t->n_merges > 3);
    CHECK(memcmp(gs_tokenizer_token(t, 256, &n), "ab", 2) == 0 && n == 2);
    CHECK(gs_tokenizer_end(t) == (int32_t)gs_tokenizer_size(t) - 1);
    CHECK(gs_tokenizer_train(&again, &config, texts, 3, NULL, &error) == GS_OK);
    char *first = text_of(t, GS_TOKENIZER_JSON), *second = text_of(again, GS_TOKENIZER_JSON);
    CHECK(strcmp(first, second) == 0);
    free(first);
    free(second);
    gs_tokenizer_free(again);
    gs_tokenizer_free(t);

    config.tokens = 257;
    CHECK(gs_tokenizer_train(&t, &config, texts, 3, NULL, &error) == GS_OK);
    CHECK(gs_tokenizer_size(t) == 257 && t->n_merges == 0);
    gs_tokenizer_free(t);
    config.tokens = 256;
    CHECK(gs_tokenizer_train(&t, &config, texts, 3, NULL, &error) == GS_ERANGE && !t);
    config.tokens = 300;
    CHECK(gs_tokenizer_train(&t, &config, texts + 1, 1, NULL, &error) == GS_ESIZE && !t);
    config.size = 0;
    CHECK(gs_tokenizer_train(&t, &config, texts, 3, NULL, &error) == GS_EVERSION && !t);
}

/* ---- files that lie ---- */

#define HEAD  "{\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false},"
#define MODEL HEAD "\"model\":{\"type\":\"BPE\","
/* what transformers 5 writes where a tokenizer adds neither a first nor a last token */
#define TEMPLATE                                                                                 \
    "{\"type\":\"TemplateProcessing\",\"single\":[{\"Sequence\":{\"id\":\"A\",\"type_id\":0}}]," \
    "\"special_tokens\":{}}"
#define ADDED(list, wrong, status)                                                              \
    {                                                                                           \
        HEAD "\"added_tokens\":" list ",\"model\":{\"vocab\":{\"a\":0},\"merges\":[]}}", wrong, \
            status                                                                              \
    }

static const struct {
    const char *text, *wrong;
    gs_status status;
} lies[] = {
    {"", "is no JSON at byte 0", GS_EFORMAT},
    {"[1]", "has no model: it is no tokenizer.json", GS_EFORMAT},
    {"{}", "has no model", GS_EFORMAT},
    {MODEL "\"vocab\":{\"a\":0},\"merges\":[", "is no JSON at byte ", GS_EFORMAT},
    {MODEL "\"vocab\":{\"a\":0,\"a\":1},\"merges\":[]}}", "duplicate object key", GS_EFORMAT},
    {MODEL "\"vocab\":{},\"merges\":[]}}", "has no vocabulary", GS_EFORMAT},
    {MODEL "\"vocab\":[],\"merges\":[]}}", "has no vocabulary", GS_EFORMAT},
    {MODEL "\"vocab\":{\"a\":0}}}", "has no list of merges", GS_EFORMAT},
    {MODEL "\"vocab\":{\"a\":0,\"b\":0},\"merges\":[]}}",
     "two of its tokens have the id 0: b is the second", GS_ERANGE},
    {MODEL "\"vocab\":{\"a\":0,\"b\":2},\"merges\":[]}}",
     "its token b has the id 2, but there are 2 tokens: ids have holes", GS_ERANGE},
    {MODEL "\"vocab\":{\"a\":1e18},\"merges\":[]}}", "ids have holes", GS_ERANGE},
    {MODEL "\"vocab\":{\"a\":-1},\"merges\":[]}}", "is not a number from 0 on", GS_EFORMAT},
    {MODEL "\"vocab\":{\"a\":0.5},\"merges\":[]}}", "is not a number from 0 on", GS_EFORMAT},
    {MODEL "\"vocab\":{\"a\":\"0\"},\"merges\":[]}}", "is not a number from 0 on", GS_EFORMAT},
    {MODEL "\"vocab\":{\"a\":0},\"merges\":[\"a b\"]}}", "merge 1 is of b, which is no token",
     GS_ENAME},
    {MODEL "\"vocab\":{\"a\":0},\"merges\":[\"a a\"]}}",
     "merge 1, a a, makes no token of the vocabulary", GS_ENAME},
    {MODEL "\"vocab\":{\"\":0,\"a\":1},\"merges\":[[\"\",\"a\"]]}}",
     "merge 1 is of , which is no token", GS_ENAME}, /* a circle: a becomes a */
    {MODEL "\"vocab\":{\"a\":0,\"aa\":1},\"merges\":[\"a a\",\"a a\"]}}",
     "merge 2, a a, is there twice", GS_EFORMAT},
    {MODEL "\"vocab\":{\"a\":0,\"aa\":1,\"aaa\":2},\"merges\":[\"aa a\"]}}",
     "merge 1 is of aa, which no merge makes", GS_ENAME}, /* the line of a a is missing */
    {MODEL "\"vocab\":{\"a\":0,\"aa\":1,\"aaa\":2},\"merges\":[\"a aa\"]}}",
     "merge 1 is of aa, which no merge makes", GS_ENAME},
    {MODEL "\"vocab\":{\"a\":0},\"merges\":[\"a\"]}}", "merge 1 is not two tokens", GS_EFORMAT},
    {MODEL "\"vocab\":{\"a\":0},\"merges\":[\"a a a\"]}}", "merge 1 is not two tokens", GS_EFORMAT},
    {MODEL "\"vocab\":{\"a\":0},\"merges\":[[\"a\"]]}}", "merge 1 is not two tokens", GS_EFORMAT},
    {MODEL "\"vocab\":{\"a\":0},\"merges\":[7]}}", "merge 1 is not two tokens", GS_EFORMAT},
    {MODEL "\"dropout\":0.1,\"vocab\":{\"a\":0},\"merges\":[]}}", "its model asks for dropout",
     GS_EVERSION},
    {MODEL "\"ignore_merges\":true,\"vocab\":{\"a\":0},\"merges\":[]}}",
     "its model asks for ignore_merges", GS_EVERSION},
    {HEAD "\"model\":{\"type\":\"WordPiece\"}}", "its model is WordPiece, which is not read",
     GS_EVERSION},
    {"{\"model\":{\"type\":\"BPE\"}}", "has no pre_tokenizer: only byte-level BPE is read",
     GS_EVERSION},
    {"{\"model\":{\"type\":\"BPE\"},\"pre_tokenizer\":{\"type\":\"Whitespace\"}}",
     "has a pre_tokenizer Whitespace, which is not read: only ByteLevel is", GS_EVERSION},
    {"{\"model\":{\"type\":\"BPE\"},\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"use_regex\":false}"
     "}",
     "use_regex false", GS_EVERSION},
    {HEAD "\"normalizer\":{\"type\":\"NFC\"},\"model\":{\"type\":\"BPE\"}}",
     "has a normalizer NFC, which is not read: it must be null", GS_EVERSION},
    {HEAD "\"truncation\":{\"max_length\":5},\"model\":{\"type\":\"BPE\"}}",
     "has a truncation, which is not read", GS_EVERSION},
    {HEAD "\"post_processor\":{\"type\":\"TemplateProcessing\"},\"model\":{\"type\":\"BPE\"}}",
     "has a post_processor TemplateProcessing", GS_EVERSION},
    {HEAD "\"post_processor\":{\"type\":\"TemplateProcessing\",\"special_tokens\":{\"<s>\":{}}},"
          "\"model\":{\"type\":\"BPE\"}}",
     "which is not read: only ByteLevel is, or a template that adds no token", GS_EVERSION},
    {HEAD "\"post_processor\":{\"type\":\"TemplateProcessing\",\"special_tokens\":[]},"
          "\"model\":{\"type\":\"BPE\"}}",
     "has a post_processor TemplateProcessing", GS_EVERSION},
    {HEAD "\"post_processor\":{\"type\":\"BertProcessing\"},\"model\":{\"type\":\"BPE\"}}",
     "has a post_processor BertProcessing", GS_EVERSION},
    {HEAD "\"decoder\":" TEMPLATE ",\"model\":{\"type\":\"BPE\"}}",
     "has a decoder TemplateProcessing, which is not read: only ByteLevel is", GS_EVERSION},
    {HEAD "\"decoder\":{\"type\":\"Metaspace\"},\"model\":{\"type\":\"BPE\"}}",
     "has a decoder Metaspace", GS_EVERSION},
    {HEAD "\"added_tokens\":[{\"id\":5,\"content\":\"<x>\"}],"
          "\"model\":{\"vocab\":{\"a\":0},\"merges\":[]}}",
     "its added token <x> has the id 5, and 1 is its turn", GS_ERANGE},
    {HEAD "\"added_tokens\":[{\"id\":1,\"content\":\"a\"}],"
          "\"model\":{\"vocab\":{\"a\":0},\"merges\":[]}}",
     "its added token a has the id 1, and 0 is its turn", GS_ERANGE},
    {HEAD "\"added_tokens\":[{\"id\":1,\"content\":\"x\"},{\"id\":1,\"content\":\"x\"}],"
          "\"model\":{\"vocab\":{\"a\":0},\"merges\":[]}}",
     "its added token x is there twice", GS_EFORMAT},
    {HEAD "\"added_tokens\":[{\"id\":1,\"content\":\"x\",\"single_word\":true}],"
          "\"model\":{\"vocab\":{\"a\":0},\"merges\":[]}}",
     "its added token x asks for single_word, which is not read", GS_EVERSION},
    {HEAD "\"added_tokens\":[{\"id\":1,\"content\":\"\"}],"
          "\"model\":{\"vocab\":{\"a\":0},\"merges\":[]}}",
     "added token 1 has no legal id and content", GS_EFORMAT},
    ADDED("[7]", "added token 1 has no legal id and content", GS_EFORMAT),
    ADDED("[{\"id\":1}]", "added token 1 has no legal id and content", GS_EFORMAT),
    ADDED("[{\"content\":\"x\"}]", "added token 1 has no legal id and content", GS_EFORMAT),
    ADDED("[{\"id\":\"1\",\"content\":\"x\"}]", "added token 1 has no legal", GS_EFORMAT),
    ADDED("[{\"id\":1,\"content\":2}]", "added token 1 has no legal id", GS_EFORMAT),
    ADDED("[{\"id\":-1,\"content\":\"x\"}]", "added token 1 has no legal id", GS_EFORMAT),
    ADDED("[{\"id\":1e9,\"content\":\"x\"}]", "added token 1 has no legal id", GS_EFORMAT),
    ADDED("[{\"id\":1.5,\"content\":\"x\"}]", "added token 1 has no legal id", GS_EFORMAT),
    {MODEL "\"vocab\":{\"a\":0},\"merges\":{}}}", "has no list of merges", GS_EFORMAT},
    {MODEL "\"merges\":[]}}", "has no vocabulary", GS_EFORMAT},
    {MODEL "\"vocab\":{\"a\":0},\"merges\":[[\"a\",\"a\",\"a\"]]}}", "merge 1 is not two tokens",
     GS_EFORMAT},
    {MODEL "\"vocab\":{\"a\":0},\"merges\":[[1,\"a\"]]}}", "merge 1 is not two tokens", GS_EFORMAT},
    {MODEL "\"vocab\":{\"a\":0},\"merges\":[[\"a\",1]]}}", "merge 1 is not two tokens", GS_EFORMAT},
    {MODEL "\"vocab\":{\"a\":0},\"merges\":[\"b a\"]}}", "merge 1 is of b, which is no token",
     GS_ENAME},
    {MODEL "\"vocab\":{\"a\":0,\"~ ~\":1},\"merges\":[[\"~ ~\",\"a\"]]}}",
     "merge 1, ~ ~ a, makes no token", GS_ENAME}, /* not of the alphabet of bytes */
    {MODEL "\"vocab\":{\"a\":0,\"~ ~\":1},\"merges\":[[\"a\",\"~ ~\"]]}}",
     "merge 1, a ~ ~, makes no token", GS_ENAME},
    {MODEL "\"end_of_word_suffix\":\"</w>\",\"vocab\":{\"a\":0},\"merges\":[]}}",
     "its model asks for end_of_word_suffix", GS_EVERSION},
    {MODEL "\"dropout\":[],\"vocab\":{\"a\":0},\"merges\":[]}}", "its model asks for dropout",
     GS_EVERSION},
    {"{\"model\":7}", "has no model: it is no tokenizer.json", GS_EFORMAT},
    {"{\"model\":{\"type\":\"BPE\"},\"pre_tokenizer\":{\"type\":7}}",
     "has a pre_tokenizer, which is not read", GS_EVERSION},
};

/* What is said where nothing is meant, is no reason to refuse. */
static const char *const taken[] = {
    MODEL "\"dropout\":0,\"vocab\":{\"a\":0},\"merges\":[]}}",
    MODEL "\"end_of_word_suffix\":\"\",\"vocab\":{\"a\":0},\"merges\":[]}}",
    MODEL "\"byte_fallback\":false,\"dropout\":null,\"vocab\":{\"a\":0},\"merges\":[]}}",
    HEAD "\"model\":{\"type\":null,\"vocab\":{\"a\":0},\"merges\":[]}}",
    HEAD "\"added_tokens\":null,\"model\":{\"vocab\":{\"a\":0},\"merges\":[]}}",
    HEAD
    "\"post_processor\":{\"type\":\"ByteLevel\"},\"model\":{\"vocab\":{\"a\":0},\"merges\":[]}}",
    HEAD "\"post_processor\":" TEMPLATE ",\"model\":{\"vocab\":{\"a\":0},\"merges\":[]}}",
};

static void test_lies(void)
{
    for (size_t i = 0; i < sizeof lies / sizeof lies[0]; i++) {
        gs_tokenizer *t = NULL;
        gs_error error = {0};
        const gs_status status =
            gs_tokenizer_read(&t, lies[i].text, strlen(lies[i].text), NULL, &error);
        CHECK_MSG(status == lies[i].status && strstr(error.text, lies[i].wrong) && !t, "%s: %d, %s",
                  lies[i].text, (int)status, error.text);
    }
    for (size_t i = 0; i < sizeof taken / sizeof taken[0]; i++) {
        gs_tokenizer *t = NULL;
        gs_error error = {0};
        CHECK_MSG(gs_tokenizer_read(&t, taken[i], strlen(taken[i]), NULL, &error) == GS_OK &&
                      gs_tokenizer_size(t) == 1 && gs_tokenizer_end(t) == GSI_NO_TOKEN,
                  "%s: %s", taken[i], error.text);
        gs_tokenizer_free(t);
    }
}

/* A byte without a token is told of where it occurs, and not dropped. */
static void test_missing_byte(void)
{
    static const char text[] = MODEL "\"vocab\":{\"a\":0},\"merges\":[]}}";
    gs_tokenizer *t = NULL;
    gs_error error = {0};
    int32_t ids[4];
    size_t n;
    CHECK(gs_tokenizer_read(&t, text, sizeof text - 1, NULL, &error) == GS_OK);
    CHECK(gs_tokenizer_encode(ids, 4, &n, t, "aa", 2, &error) == GS_OK && n == 2);
    CHECK(gs_tokenizer_encode(ids, 4, &n, t, "ab", 2, &error) == GS_ENAME &&
          strstr(error.text, "the byte 0x62"));
    gs_tokenizer_free(t);
}

static void test_no_files(void)
{
    gs_tokenizer *t;
    gs_error error = {0};
    CHECK(gs_tokenizer_open(&t, "tests/unit", NULL, &error) == GS_EIO &&
          strstr(error.text, "tests/unit: has no tokenizer.json and no vocab.json"));
    CHECK(gs_tokenizer_open(&t, "/none", NULL, &error) == GS_EIO && !t);
    CHECK(gs_tokenizer_open(&t, FOLDER "vectors.txt", NULL, &error) == GS_EFORMAT && !t);
    CHECK(gs_tokenizer_open(&t, NULL, NULL, &error) == GS_ENULL);
}

/* Each allocation fails in turn: an error, and nothing is left behind. */
static void test_memory(void)
{
    static const char text[] = "abab abab cab cab the the theabab";
    const gs_text learned = {text, sizeof text - 1};
    const gs_tokenizer_config config = {.size = sizeof config, .tokens = 270};
    for (size_t at = 1, made = 0; !made; at++) {
        books b = {.fail_at = at};
        const gs_alloc hook = books_hook(&b);
        gs_tokenizer *t = NULL, *again = NULL;
        gs_error error = {0};
        int32_t ids[200];
        size_t n;
        gs_status status = gs_tokenizer_train(&t, &config, &learned, 1, &hook, &error);
        if (status == GS_OK)
            status = gs_tokenizer_open(&again, FOLDER "added.json", &hook, &error);
        if (status == GS_OK)
            status = gs_tokenizer_encode(ids, 200, &n, again, text, sizeof text - 1, &error);
        CHECK(status == GS_OK || status == GS_ENOMEM);
        made = b.calls < at;
        CHECK(!made || status == GS_OK);
        gs_tokenizer_free(t);
        gs_tokenizer_free(again);
        CHECK(b.blocks == 0 && !b.wrong);
    }
}

TESTS({"vectors", test_vectors}, {"classes", test_classes}, {"text", test_text},
      {"files", test_files}, {"any_bytes", test_any_bytes}, {"long_words", test_long_words},
      {"room", test_room}, {"remembered", test_remembered}, {"train", test_train},
      {"lies", test_lies}, {"missing_byte", test_missing_byte}, {"no_files", test_no_files},
      {"memory", test_memory})

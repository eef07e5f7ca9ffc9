/* Our reader of JSON against jansson's: the same texts are accepted and refused, with the same
 * values; and what a long header of safetensors takes of memory. */
#include "test.h"

#include "gradscale/io.h"
#include "io/json.h"

#include <jansson.h>
#include <math.h>
#include <stdbool.h>
#include <unistd.h>

#define ROWS(array) (sizeof(array) / sizeof((array)[0]))

static bool same(const gsi_node *n, const json_t *j)
{
    switch (json_typeof(j)) {
    case JSON_OBJECT: {
        if (n->kind != GSI_JSON_OBJECT || n->count != json_object_size(j))
            return false;
        for (const gsi_node *i = n->first; i; i = i->next)
            if (!json_object_get(j, i->key) || !same(i, json_object_get(j, i->key)))
                return false;
        return true;
    }
    case JSON_ARRAY: {
        size_t k = 0;
        if (n->kind != GSI_JSON_ARRAY || n->count != json_array_size(j))
            return false;
        for (const gsi_node *i = n->first; i; i = i->next, k++)
            if (!same(i, json_array_get(j, k)))
                return false;
        return true;
    }
    case JSON_STRING:
        return n->kind == GSI_JSON_STRING && strcmp(n->text, json_string_value(j)) == 0;
    case JSON_REAL: {
        const double x = json_real_value(j);
        return n->kind == GSI_JSON_NUMBER && memcmp(&n->number, &x, sizeof x) == 0;
    }
    case JSON_TRUE:
        return n->kind == GSI_JSON_TRUE;
    case JSON_FALSE:
        return n->kind == GSI_JSON_FALSE;
    default:
        return n->kind == GSI_JSON_NULL;
    }
}

static void compare(const char *given, size_t length)
{
    char *text = malloc(length + !length); /* ASan knows where it ends */
    memcpy(text, given, length);
    gsi_heap heap;
    gsi_arena arena;
    gsi_heap_init(&heap, NULL);
    gsi_arena_init(&arena, &heap);
    gsi_json j = gsi_json_of(text, length);
    const gsi_node *root;
    const char *wrong;
    const gs_status status = gsi_json_tree(&root, &j, &arena, &wrong);
    json_error_t why;
    json_t *theirs = json_loadb(
        text, length, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY | JSON_DECODE_INT_AS_REAL, &why);
    CHECK_MSG((status == GS_OK) == (theirs != NULL), "%.*s: %s, but %s", (int)length, text,
              status == GS_OK ? "accepted" : wrong, theirs ? "accepted" : why.text);
    CHECK((status == GS_OK) != (wrong != NULL));
    if (status == GS_OK && theirs)
        CHECK_MSG(same(root, theirs), "%.*s", (int)length, text);
    json_decref(theirs);
    gsi_arena_free(&arena);
    free(text);
}

static const char *const seeds[] = {
    "{}",
    "[]",
    "null",
    "-0.5e-3",
    "\"a\\u00e9\\ud83d\\ude00\\n\"",
    "{\"a\":[1,2.5,-3e10,true,false,null],\"b\":{\"c\":\"\\u20ac\"}}",
    "{\"dtype\":\"F32\",\"shape\":[1,2],\"data_offsets\":[0,8]}",
    "{\"step\":1,\"loss\":0.5,\"scale\":65536,\"best\":true,\"x\":\"\xc3\xa9\xe2\x82\xac\"}",
    "[[[[[[1e308,1e-400,0.1,123456789012345678901234567890]]]]]]",
    " \t\r\n{ \"a\" : [ ] , \"b\" : { } } ",
    "{\"a\":1,\"a\":2}",
    "[1e999]",
    "[01]",
    "[1.]",
    "[+1]",
    "[\"\\ud800\"]",
    "[\"\\u0000\"]",
    "[\"\x01\"]",
    "[\"\xff\"]",
    "[1,]",
    "{\"a\"}",
    "[NaN]",
    "",
    "{} x",
};

static void test_like_jansson(void)
{
    static const char bytes[] = "{}[]\",:.-+eE0123456789 \\utrfalsn\x80\xc3\xa9\xe2\x1f\xed\xa0";
    const uint64_t rounds = test_long() ? 2000000 : 60000;
    for (size_t i = 0; i < ROWS(seeds); i++)
        for (size_t n = 0; n <= strlen(seeds[i]); n++) /* and cut off anywhere */
            compare(seeds[i], n);
    for (uint64_t i = 0; i < rounds; i++) {
        char text[256];
        const char *seed = seeds[gs_random_u32(1, 8 * i) % ROWS(seeds)];
        size_t n = strlen(seed);
        memcpy(text, seed, n);
        const uint32_t changes = 1 + gs_random_u32(1, 8 * i + 1) % 3;
        for (uint32_t c = 0; c < changes; c++) {
            const uint32_t r = gs_random_u32(2, 8 * i + c);
            const size_t at = n > 0 ? (r >> 8) % n : 0;
            const char byte = bytes[(r >> 20) % (sizeof bytes - 1)];
            if (r % 3 == 0 && n > 0) {
                text[at] = byte;
            } else if (r % 3 == 1 && n < sizeof text) {
                memmove(text + at + 1, text + at, n - at);
                text[at] = byte;
                n++;
            } else if (n > 0) {
                memmove(text + at, text + at + 1, n - at - 1);
                n--;
            }
        }
        compare(text, n);
    }
}

/* ---- memory ---- */

typedef struct peak {
    size_t now, most;
} peak;

static void *count_peak(void *user, void *block, size_t old_size, size_t size)
{
    peak *p = user;
    p->now += size - old_size;
    p->most = p->now > p->most ? p->now : p->most;
    if (size > 0)
        return realloc(block, size);
    free(block);
    return NULL;
}

static void test_long_header(void)
{
    enum { TENSORS = 100000 };
    char path[] = "/tmp/gs_test_json_XXXXXX", *text = malloc(64 * TENSORS + 8);
    size_t n = 8;
    const int fd = mkstemp(path);
    text[n++] = '{';
    for (int i = 0; i < TENSORS; i++)
        n += (size_t)sprintf(text + n,
                             "%s\"%d\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]}",
                             i ? "," : "", i);
    text[n++] = '}';
    for (int i = 0; i < 8; i++)
        text[i] = (char)((n - 8) >> 8 * i);
    CHECK(fd >= 0 && write(fd, text, n) == (ssize_t)n);
    close(fd);
    free(text);
    peak p = {0};
    const gs_alloc alloc = {count_peak, &p};
    gs_source *s = NULL;
    gs_error error = {0};
    CHECK_MSG(gs_source_open(&s, path, &alloc, &error) == GS_OK, "%s", error.text);
    CHECK(s && gs_source_count(s) == TENSORS);
    CHECK_MSG((double)p.most < 10 * (double)n, "%.1f times", (double)p.most / (double)n);
    gs_source_close(s);
    CHECK(p.now == 0);
    unlink(path);
}

TESTS({"like_jansson", test_like_jansson}, {"long_header", test_long_header})

/* JSON, read one token at a time: no tree, no memory, no recursion; and, for those who want to look
 * members up, a small tree in an arena.
 *
 *     gsi_json j = gsi_json_of(text, n);
 *     while (gsi_json_next(&j) && j.kind != GSI_JSON_END) ... j.kind, and of strings and numbers
 *     the bytes text[j.begin .. j.begin + j.size)
 *     if (j.wrong) "wrong at byte j.at: j.wrong"
 *
 * What RFC 8259 calls JSON, in valid UTF-8, without U+0000, with numbers of up to 1200 characters
 * that a double holds, and no deeper than GSI_JSON_DEPTH. */
#ifndef GSI_IO_JSON_H
#define GSI_IO_JSON_H

#include "base/base.h"

enum { GSI_JSON_DEPTH = 512 };
enum { GSI_JSON_NODES = 1 << 20 }; /* values of a tree: more are refused */

typedef enum gsi_json_kind {
    GSI_JSON_END, /* of the text */
    GSI_JSON_OBJECT,
    GSI_JSON_ARRAY,
    GSI_JSON_CLOSE, /* of the object or array that was opened last */
    GSI_JSON_KEY,
    GSI_JSON_STRING,
    GSI_JSON_NUMBER,
    GSI_JSON_TRUE,
    GSI_JSON_FALSE,
    GSI_JSON_NULL
} gsi_json_kind;

typedef struct gsi_json {
    const char *text;
    size_t length, at;
    bool lenient; /* NaN and Infinity, which others write, are null */
    uint8_t expect;
    int depth;
    char open[GSI_JSON_DEPTH]; /* '{' or '[' */

    gsi_json_kind kind; /* of the token */
    size_t begin, size; /* its bytes; of a string, those between the quotes */
    const char *wrong;  /* NULL: nothing; else a phrase */
} gsi_json;

gsi_json gsi_json_of(const char *text, size_t length);
/* False: j->wrong. */
bool gsi_json_next(gsi_json *j);
/* The string or key without its escapes, in out[j->size + 1] with a 0 behind; its length. */
size_t gsi_json_string(char *out, const gsi_json *j);
bool gsi_json_is(const gsi_json *j, const char *text); /* a string or key that has no escapes */
/* strtod of `size` bytes, at most 1200, with a point in any locale. False: they are no number. */
bool gsi_number(double *out, const char *text, size_t size);
bool gsi_json_count(uint64_t *out, const gsi_json *j); /* digits alone, up to 2^63 - 1 */

typedef struct gsi_node {
    gsi_json_kind kind;
    const char *key;  /* of a member; else NULL */
    const char *text; /* of a string */
    double number;
    size_t count;                        /* of an object or array */
    const struct gsi_node *first, *next; /* in it; beside it */
} gsi_node;

/* GS_OK; GS_ENOMEM; GS_ESIZE: too many values; GS_EFORMAT: *wrong says why, a key that comes twice
 * included. */
gs_status gsi_json_tree(const gsi_node **root, gsi_json *j, gsi_arena *arena, const char **wrong);
const gsi_node *gsi_node_get(const gsi_node *object, const char *key); /* NULL: it has none */

#endif

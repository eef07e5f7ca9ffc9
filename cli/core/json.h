/* json.h: writes JSON to a file as it goes.
 *
 *     json_writer j;
 *     put_begin(&j, stdout, true);
 *     put_object(&j, NULL);
 *     put_string(&j, "name", "f16");
 *     put_array(&j, "values"); put_double(&j, NULL, 0.1); put_end(&j);
 *     put_end(&j);                                               {"name": "f16", "values": [0.1]}
 *
 * The functions are put_*: jansson, which reads, has json_*. key is NULL in arrays and at the top.
 * After the outermost value a newline is written: with pretty false that makes a line of JSON
 * Lines. Write errors are the stream's: ask ferror(). */
#ifndef JSON_H
#define JSON_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

typedef struct json_writer {
    FILE *to;
    bool pretty;                  /* one line per member, two spaces per level */
    int depth;                    /* at most 63 */
    uint64_t is_array, is_filled; /* one bit per level */
} json_writer;

void put_begin(json_writer *j, FILE *to, bool pretty);
void put_object(json_writer *j, const char *key);
void put_array(json_writer *j, const char *key);
void put_end(json_writer *j); /* of the innermost object or array */

void put_string(json_writer *j, const char *key, const char *value); /* NULL: null */
void put_double(json_writer *j, const char *key, double value);      /* not finite: null */
void put_u64(json_writer *j, const char *key, uint64_t value);
void put_i64(json_writer *j, const char *key, int64_t value);
void put_bool(json_writer *j, const char *key, bool value);
void put_null(json_writer *j, const char *key);

#endif

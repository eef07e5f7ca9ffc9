/* protobuf.h: messages of Protocol Buffers, written into memory.
 *
 *     pb node = {0};
 *     pb_text(&node, 4, "Relu");             field 4, a string
 *     pb_message(&graph, 1, &node);          field 1 of graph, and empties node
 */
#ifndef PROTOBUF_H
#define PROTOBUF_H

#include "cli/core/cli.h"

typedef struct pb {
    unsigned char *data;
    size_t n, room;
} pb;

void pb_int(pb *to, unsigned field, uint64_t value);
void pb_float(pb *to, unsigned field, float value);
void pb_bytes(pb *to, unsigned field, const void *data, size_t n);
void pb_text(pb *to, unsigned field, const char *text);
/* Moves `part` into `to`: part is empty then. */
void pb_message(pb *to, unsigned field, pb *part);
/* Appends the fields of `part` to those of `to`: part is empty then. */
void pb_join(pb *to, pb *part);
void pb_free(pb *x);

#endif

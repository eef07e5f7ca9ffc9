/* What operations are made of.
 *
 * An operation NAME is two functions side by side: gs_NAME computes and records, and
 * gsi_NAME_backward, found through GS_OPS, adds to the gradients of its inputs. It keeps what it
 * needs in a struct of its own that begins with a gsi_op. */
#ifndef GSI_ENGINE_H
#define GSI_ENGINE_H

#include "gradscale/engine.h"
#include "kernel/context.h"
#include "kernel/gemm.h"
#include "kernel/rows.h"

enum { GSI_INPUTS = 3 };

typedef struct gsi_op {
    struct gsi_op *before;
    gs_value *out, *in[GSI_INPUTS];
    size_t layer; /* index, or SIZE_MAX */
    gs_op op;
} gsi_op;

/* A gradient's memory. Several values may have the same; with no user left it is used again. */
struct gsi_buffer {
    struct gsi_buffer *next; /* while it has no user */
    void *data;
    size_t bytes;
    unsigned users;
    bool inside; /* of a segment: gone when it ends */
};

/* A weight that the step uses; every use of it is newer than `since`. */
struct gsi_use {
    struct gsi_use *before;
    const gs_weight *weight;
    const gsi_op *since;
};

/* The backward pass has passed every use of the weight: its gradient is complete. Called with NULL
 * after every operation besides, for what is to move on meanwhile. */
typedef void gsi_passed_fn(void *user, const gs_weight *weight);

/* Where the tape is: outside of all segments, or in the first run of one, or in its second. */
typedef enum gsi_where { GSI_OUTSIDE, GSI_FIRST_RUN, GSI_SECOND_RUN } gsi_where;

struct gs_tape {
    gs_context *ctx;
    gs_tape_config config, next; /* of this step, of the next one */
    gsi_rows rows;
    bool training;
    bool exponents, ask_exponents; /* of this step, of the next one */
    gsi_where where;
    gsi_arena arena, segment; /* the step's, and that of the segment that is being run */
    gsi_op *last;
    struct gsi_buffer *spares[2]; /* outside and inside of segments */
    gsi_passed_fn *passed;        /* NULL: nobody asks */
    void *passed_user;
    struct gsi_use *uses; /* newest first, each weight once */
    const gs_weight *fresh_list;
    bool *fresh; /* [fresh_room]: nothing has been added to it since gsi_tape_fresh */
    size_t fresh_count, fresh_room;
    const char *doing; /* the operation that is made or run back, for sentences */
    gs_value poison;
    gs_error error;
    gs_stats stats;
    gs_layer *layers; /* [layer_room], of the tape's life */
    size_t layer_count, layer_room, layer;
    gs_memory memory, inside; /* of the step; of the largest segment besides */
    uint64_t seed, dropouts;  /* of this step: each has random bits of its own */
};

/* From the next gs_tape_begin on; NULL: no longer. */
void gsi_tape_watch(gs_tape *t, gsi_passed_fn *passed, void *user);

/* The gradients of list[n] count as zero, whatever they hold: what is first added to one is written
 * to it, which saves clearing and reading it. In the order of their addresses, as a store has them.
 */
gs_status gsi_tape_fresh(gs_tape *t, const gs_weight *list, size_t n);
/* Clears the gradient if nothing has been added to it since; NULL: all such. */
void gsi_tape_settle(gs_tape *t, const gs_weight *weight);

/* ---- making values ---- */

/* Whether `op`, which is being made from here on, can read v. If not, the tape has failed. */
bool gsi_given(gs_tape *t, gs_op op, const gs_value *v);
/* Whether v is the poisoned value. */
static inline bool gsi_poisoned(const gs_value *v) { return !v->data; }
/* "[4 5]" for such sentences. */
const char *gsi_shape(char text[96], const gs_value *v);

/* Memory of the step, or of the segment inside of one; NULL after noting that there is none. */
void *gsi_step_new(gs_tape *t, size_t count, size_t size);

/* A value with data to fill; the poisoned one if there is no memory. */
gs_value *gsi_value(gs_tape *t, gs_dtype dtype, int rank, const size_t *shape);

/* Records an operation of `size` bytes and marks `out` as in need of a gradient. NULL: no input
 * needs one, or this is no training step; or there is no memory, which is noted. */
void *gsi_record(gs_tape *t, gs_op op, size_t size, gs_value *out, gs_value *a, gs_value *b,
                 gs_value *c);

/* Rows of a matrix. A vector has one: gs_param makes it of a weight with one row. */
static inline size_t gsi_rows_of(const gs_value *w) { return w->rank == 2 ? w->shape[0] : 1; }

/* The value whose data v shows. */
static inline gs_value *gsi_root(gs_value *v)
{
    while (v->alias)
        v = v->alias;
    return v;
}

/* The backward pass of one more operation will read v's data. */
static inline void gsi_keep(gs_value *v)
{
    gs_value *root = gsi_root(v);
    root->kept = (unsigned char)(root->kept + (root->kept < 2));
}

/* ---- autocast ---- */

/* x in the type in which the class of `op` wants it; cast once a step. */
gs_value *gsi_operand(gs_tape *t, gs_op op, gs_value *x);
/* The type that the class of `op` gives its result, of operands of types a and b. */
gs_dtype gsi_result_type(const gs_tape *t, gs_op op, gs_dtype a, gs_dtype b);

/* ---- backward ---- */

/* Where to put d(v): data = beta * data + ..., beta 0 or 1. false: nowhere. */
typedef struct gsi_target {
    void *data;
    float beta;
} gsi_target;
bool gsi_target_of(gs_tape *t, gs_value *v, gsi_target *out);

/* The same for what cannot add: write to `out`, which is d(v) itself, or memory that `end` adds to
 * it. Works for weights too, whose drafts are f32. */
typedef struct gsi_draft {
    gsi_out out;
    struct gsi_buffer *buffer; /* NULL: out is d(v) */
} gsi_draft;
bool gsi_draft_begin(gs_tape *t, gs_value *v, gsi_draft *draft);
void gsi_draft_end(gs_tape *t, gs_value *v, const gsi_draft *draft);

/* Adds d[v->count] of a type to d(v), be v a weight or not. d is free again afterwards. */
void gsi_give(gs_tape *t, gs_value *v, const void *d, gs_dtype dtype);
/* d(v) is d(from), of equal type and count: no copy is made unless there is something to add to. */
void gsi_share(gs_tape *t, gs_value *v, gs_value *from);
/* Makes memory of the step the gradient's: what was written there is d(v). */
void gsi_adopt(gs_tape *t, gs_value *v, void *data);
/* d(v), made inside of a segment, is to outlive it. */
void gsi_rescue(gs_tape *t, gs_value *v);
/* Runs the list backwards from `op`. */
void gsi_backward(gs_tape *t, gsi_op *op);
/* d(v) will not be read again. */
void gsi_release(gs_tape *t, gs_value *v);

/* Whether the sum of a weight's gradient is rounded to v->dtype before it is accumulated: where the
 * operation read the weight in half. So autocast and Apex have it: products, their biases and
 * embeddings get half gradients, norms f32 ones unless all is half (O3). */
bool gsi_rounds_wgrad(const gs_tape *t, const gs_value *v);
/* Whether nothing has been added to the gradient yet. It is no longer so: the caller writes it. */
bool gsi_take_fresh(gs_tape *t, const gs_weight *w);
/* Adds g's product to d(v), be v a weight or not; all of g but c and beta is set. */
void gsi_grad_product(gs_tape *t, gs_value *v, gs_gemm *g);
/* The same for the sum of the rows of d [rows, v->count], or of d times e where e has data. */
void gsi_grad_columns(gs_tape *t, gs_value *v, gsi_in d, gsi_in e, size_t rows);
/* Gradients: dst[n] = src[n];  dst[n] += src[n]. What is stored in half is counted. */
void gsi_copy_array(gs_tape *t, gsi_out dst, gsi_in src, size_t n);
void gsi_add_arrays(gs_tape *t, gsi_out dst, gsi_in src, size_t n);

/* Runs a product. What it stores in half is counted if it is a gradient. */
void gsi_product(gs_tape *t, gs_gemm *g, bool gradient);
/* Counts what was stored as gradients. */
void gsi_note(gs_tape *t, const gs_stats *stats);

/* Of a call of the layers below: a failure is the tape's. */
void gsi_demand(gs_tape *t, gs_status status);

/* ---- rows ---- */

/* Handles rows [first, first + count), part of a loop. A chunk that stores gradients adds them to
 * counts, which is NULL if nobody wants to know, and returns the largest magnitude it stored. */
typedef uint32_t gsi_chunk_fn(void *arg, size_t first, size_t count, gsi_counts *counts);

/* Calls body for chunks of a fixed number of rows, on all threads. `gradient`: what it stores are
 * half-stored gradients, and counts for the layer. */
void gsi_over_rows(gs_tape *t, size_t rows, size_t cols, gsi_chunk_fn *body, void *arg,
                   bool gradient);
/* How many rows of that length a chunk has. */
size_t gsi_chunk_rows(size_t cols);
/* Of what a kernel counted, if it did, and the largest magnitude it stored; no elements. */
gs_stats gsi_stats_of(const gsi_counts *c, uint32_t top, bool counted);

static inline gsi_in gsi_data(const gs_value *v) { return (gsi_in){v->data, v->dtype}; }
static inline gsi_in gsi_grad(const gs_value *v) { return (gsi_in){v->grad, v->dtype}; }

typedef void gsi_backward_fn(gs_tape *t, gsi_op *op);
#define X(name, class) gsi_backward_fn gsi_##name##_backward;
GS_OPS(X)
#undef X

#endif

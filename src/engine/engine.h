/* What operations are made of.
 *
 * An operation NAME is two functions side by side: gs_NAME computes and records, and
 * gsi_NAME_backward, found through GS_OPS, adds to the gradients of its inputs. It keeps what it
 * needs in a struct of its own that begins with a gsi_op. */
#ifndef GSI_ENGINE_H
#define GSI_ENGINE_H

#include "gradscale/engine.h"
#include "kernel/context.h"
#include "kernel/gemm/gemm.h"
#include "kernel/rows/rows.h"

enum { GSI_INPUTS = 3 };

typedef struct gsi_op {
    struct gsi_op *before;
    gs_value *out, *in[GSI_INPUTS];
    size_t layer; /* index, or SIZE_MAX */
    gs_op op;
} gsi_op;

/* A gradient's memory. Several values may share it; without users it goes to the free list. */
struct gsi_buffer {
    struct gsi_buffer *next; /* in the free list */
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

/* The weight's gradient is complete: the backward pass has run every operation that uses it. Also
 * called with NULL after every operation, so that transfers under way can advance. */
typedef void gsi_ready_fn(void *user, const gs_weight *weight);

/* Where the tape is: outside of all segments, or in the first run of one, or in its second. */
typedef enum gsi_where { GSI_OUTSIDE, GSI_FIRST_RUN, GSI_SECOND_RUN } gsi_where;

/* A value with what the tape knows of it: the gs_value of every call is one's first member. */
typedef struct gsi_node {
    gs_value value;
    void *data;                /* value.data where an operation fills it in; else NULL */
    gs_value *low;             /* this value in the half type, once asked for */
    struct gsi_buffer *buffer; /* who owns value.grad */
    gs_value *alias;           /* whose data it shows in another shape */
    unsigned char kept;        /* how many operations read data in backward, up to 2 */
} gsi_node;

static inline gsi_node *gsi_node_of(gs_value *v) { return (gsi_node *)v; }

struct gs_tape {
    gs_context *ctx;
    gs_tape_config config, next; /* of this step, of the next one */
    const gsi_rows *rows;        /* the context's */
    bool training;
    bool exponents, ask_exponents; /* of this step, of the next one */
    bool calibrating, ask_calibrating;
    const gs_weight *ranged; /* [ranged_count]: weights with ranges */
    size_t ranged_count;
    float *ranges;          /* of those with more than one row */
    const gs_weight *fixed; /* [fixed_count]: weights that stay as they are */
    size_t fixed_count;
    struct gsi_fixed *forms; /* [fixed_count], see fixed.c; NULL: none yet */
    bool panels;             /* products of one row keep them so: it pays where there are many */
    gsi_where where;
    gsi_arena arena, segment; /* the step's, and that of the segment that is being run */
    gsi_op *last;
    struct gsi_buffer *spares[2]; /* outside and inside of segments */
    gsi_ready_fn *ready;          /* NULL: not wanted */
    void *ready_user;
    struct gsi_use *uses; /* newest first, each weight once */
    const gs_weight *fresh_list;
    bool *fresh; /* [fresh_room]: nothing has been accumulated since gsi_tape_fresh */
    size_t fresh_count, fresh_room;
    const char *doing; /* the operation that runs forward or backward, for error messages */
    gs_op timed;       /* since when time belongs to it; GS_OP_COUNT: to none */
    double timed_since;
    bool backward; /* gs_tape_backward runs */
    gs_op_seconds seconds[GS_OP_COUNT];
    gsi_node poison;
    gs_error error;
    gs_stats stats;
    gs_layer *layers;    /* [layer_room], of the tape's life */
    gs_exponents **sums; /* [layer_room]: their exponents, to add to */
    size_t layer_count, layer_room, layer;
    gs_memory memory, inside; /* of the step; of the largest segment besides */
    uint64_t seed, dropouts;  /* of this step: each has random bits of its own */
};

/* Calls `ready` from the next gs_tape_begin on; NULL: no longer. */
void gsi_tape_watch(gs_tape *t, gsi_ready_fn *ready, void *user);

/* The gradients of list[n] count as zero, whatever they hold: the first accumulation into one
 * overwrites it, which saves clearing and reading it. The list is sorted by address, as a store's
 * is. */
gs_status gsi_tape_fresh(gs_tape *t, const gs_weight *list, size_t n);
/* Zero-fills the gradient if nothing has been accumulated since; weight NULL: all such. */
void gsi_tape_zero_fill(gs_tape *t, const gs_weight *weight);

/* `op` runs from here on, forward or backward; GS_OP_COUNT: none does. */
void gsi_run_op(gs_tape *t, gs_op op);

/* ---- making values ---- */

/* Whether `op`, which is being made from here on, can read v. If not, the tape has failed. */
bool gsi_readable(gs_tape *t, gs_op op, const gs_value *v);
/* Whether v is the poisoned value. */
static inline bool gsi_poisoned(const gs_value *v) { return !v->data; }
/* "[4 5]", for error messages. */
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
    while (gsi_node_of(v)->alias)
        v = gsi_node_of(v)->alias;
    return v;
}

/* The backward pass of one more operation will read v's data. */
static inline void gsi_keep(gs_value *v)
{
    gsi_node *root = gsi_node_of(gsi_root(v));
    root->kept = (unsigned char)(root->kept + (root->kept < 2));
}

/* ---- autocast ---- */

/* x in the type in which the class of `op` wants it; cast once per step. */
gs_value *gsi_operand(gs_tape *t, gs_op op, gs_value *x);
/* The type that the class of `op` gives its result, of operands of types a and b. */
gs_dtype gsi_result_type(const gs_tape *t, gs_op op, gs_dtype a, gs_dtype b);

/* Casts in = {q, k, v}, or {qkv, NULL, NULL}, as attention reads them. Returns the width of its
 * result, heads * d; 0: they do not fit, and the tape has failed. */
size_t gsi_attention_width(gs_tape *t, gs_value *in[3], size_t heads, size_t kv_heads,
                           const char *name);

/* ---- quantisation ---- */

/* gs_fake_quant of what has been checked. */
gs_value *gsi_fake_quant(gs_tape *tape, gs_value *x, const gsi_quant *how);

/* Where the range of what is multiplied by the weight lies; NULL: it has none. */
float *gsi_range_of(const gs_tape *t, const gs_weight *w);
/* The largest magnitude of x[n], as bits; GSI_F32_INF: not all is finite. */
uint32_t gsi_range_amax(const gs_tape *t, gsi_in x, size_t n);
/* Moves the range by what is in x[n], all of it finite. */
void gsi_range_move(gs_tape *t, float *range, gsi_in x, size_t n, float amax);

/* A matrix as integers. */
typedef struct gsi_codes {
    void *codes;  /* int8_t, or bf16 without config.int8 */
    float *units; /* [rows]: what 1 in a row stands for */
    size_t most;  /* the largest sum of magnitudes of a row */
    bool made;    /* false: there is room for all that */
    bool bad;     /* not all of it is finite */
} gsi_codes;

/* The operands of a product as integers. */
typedef struct gsi_quantized {
    bool on;             /* false: the product is one of floats */
    bool bad;            /* an operand is not finite: so is the result */
    const void *x, *w;   /* int8_t, or bf16 without config.int8 */
    const float *scale;  /* [rows of w]: what 1 in a sum stands for */
    size_t most;         /* the largest sum of magnitudes of a row of w */
    const void *w_value; /* what they stand for, in the type of w: backward's; NULL: no training */
} gsi_quantized;

/* w shows `weight`, NULL: no weight. *x becomes what the product is to be recorded with. False: the
 * tape has failed. */
bool gsi_quantize_operands(gs_tape *t, const gs_weight *weight, gs_value **x, const gs_value *w,
                           gsi_quantized *out);
/* The forward product g of operands of which g has all but the integers; adds the bias. */
void gsi_quantized_product(gs_tape *t, const gsi_quantized *q, const gs_gemm *g);

/* ---- weights that stay as they are ---- */

/* So these do until this is called again: other forms of them are made once. */
void gsi_tape_fix(gs_tape *t, const gs_weight *weights, size_t n);
/* w [n, k], which shows `weight`, in panels for gsi_gemm_panels; NULL: it is not kept so. */
const void *gsi_fixed_panels(gs_tape *t, const gs_weight *weight, const gs_value *w);
/* The integers of w, which shows `weight`, or room of so many bytes for them; NULL: they are not
 * kept. */
gsi_codes *gsi_fixed_codes(gs_tape *t, const gs_weight *weight, const gs_value *w, size_t bytes);

/* ---- backward ---- */

/* Where kernels that cannot accumulate put d(v): they write to `out`, which is d(v) itself or a
 * staging buffer that `end` accumulates into d(v). Works for weights too, staged in f32. `begin` is
 * false: nowhere. */
typedef struct gsi_stage {
    gsi_out out;
    struct gsi_buffer *buffer; /* NULL: out is d(v) */
} gsi_stage;
bool gsi_stage_begin(gs_tape *t, gs_value *v, gsi_stage *stage);
void gsi_stage_end(gs_tape *t, gs_value *v, const gsi_stage *stage);

/* d(v) += d[v->count], of any type; v may be a weight. d may be reused afterwards. */
void gsi_accumulate(gs_tape *t, gs_value *v, const void *d, gs_dtype dtype);
/* d(v) += d(from), of equal type and count. They share a buffer if d(v) was empty. */
void gsi_share(gs_tape *t, gs_value *v, gs_value *from);
/* d(v) owns `data`, memory of the step that already holds it. */
void gsi_own(gs_tape *t, gs_value *v, void *data);
/* Promotes d(v) from the segment's arena to the step's: it outlives the segment. */
void gsi_promote(gs_tape *t, gs_value *v);
/* Runs the list in reverse from `op`. */
void gsi_backward(gs_tape *t, gsi_op *op);
/* d(v) will not be read again. */
void gsi_release(gs_tape *t, gs_value *v);

/* Whether the sum of a weight's gradient is rounded to v->dtype before it is accumulated: where the
 * operation read the weight in half. So autocast and Apex have it: products, their biases and
 * embeddings get half gradients, norms f32 ones unless all is half (O3). */
bool gsi_rounds_wgrad(const gs_tape *t, const gs_value *v);
/* Whether nothing has been accumulated into the gradient yet; clears the mark: the caller writes.
 */
bool gsi_take_fresh(gs_tape *t, const gs_weight *w);
/* d(v) += the product g; v may be a weight. The caller has set all of g but c and beta. */
void gsi_grad_product(gs_tape *t, gs_value *v, gs_gemm *g);
/* d(v) += the sum of the rows of d [rows, v->count], or of d * e where e has data. */
void gsi_grad_columns(gs_tape *t, gs_value *v, gsi_in d, gsi_in e, size_t rows);
/* Gradients: dst[n] = src[n];  dst[n] += src[n]. What is stored in half is counted. */
void gsi_copy_array(gs_tape *t, gsi_out dst, gsi_in src, size_t n);
void gsi_add_arrays(gs_tape *t, gsi_out dst, gsi_in src, size_t n);

/* Runs a product. What it stores in half is counted if it is a gradient. */
void gsi_product(gs_tape *t, gs_gemm *g, bool gradient);
/* Counts what was stored as gradients. */
void gsi_note(gs_tape *t, const gs_stats *stats);

/* A failure of a call of the layers below becomes the tape's. */
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

/* Where the operation that makes v writes. */
static inline gsi_out gsi_out_of(gs_value *v)
{
    return (gsi_out){gsi_node_of(v)->data, v->dtype, NULL};
}
static inline gsi_in gsi_data(const gs_value *v) { return (gsi_in){v->data, v->dtype}; }
static inline gsi_in gsi_grad(const gs_value *v) { return (gsi_in){v->grad, v->dtype}; }

typedef void gsi_backward_fn(gs_tape *t, gsi_op *op);
#define X(name, class) gsi_backward_fn gsi_##name##_backward;
GS_OPS(X)
#undef X

#endif

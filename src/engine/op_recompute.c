/* recompute: a segment of the tape that keeps its x and its result only, and is run again when
 * backward reaches it.
 *
 * (1) What a segment makes lies in an arena of its own, empty outside of segments. Its result and
 *     the gradient of its x are moved out before it ends.
 * (2) The second run sees what the first saw: the same numbers of dropouts and layers; running
 *     statistics move in the first alone.
 * (3) The second run adds to d(x) itself, in the order of a tape without segments. */
#include "engine/engine.h"

#include <string.h>

/* What the tape says to those inside and must say again outside. */
typedef struct state {
    gsi_op *last;
    uint64_t dropouts;
    size_t layer, layer_count;
    gs_memory memory;
    gs_value *low; /* of x: a cast inside is the segment's */
} state;

typedef struct recompute_op {
    gsi_op op;
    gs_segment *run;
    void *args;
    state before; /* the first run */
} recompute_op;

static state state_of(const gs_tape *t, gs_value *x)
{
    return (state){t->last, t->dropouts, t->layer, t->layer_count, t->memory, gsi_node_of(x)->low};
}

/* Back outside; what lies in the segment's arena stays until it is emptied. */
static void leave(gs_tape *t, gs_value *x, const state *before)
{
    const gs_memory *all = &t->memory, *old = &before->memory;
    t->inside.activations =
        gsi_max_size(t->inside.activations, all->activations - old->activations);
    t->inside.gradients = gsi_max_size(t->inside.gradients, all->gradients - old->gradients);
    t->memory = *old;
    gsi_node_of(x)->low = before->low;
    t->where = GSI_OUTSIDE;
}

static void empty(gs_tape *t)
{
    gsi_arena_reset(&t->segment, (gsi_mark){0});
    t->spares[1] = NULL;
}

gs_value *gs_recompute(gs_tape *tape, gs_value *x, gs_segment *run, const void *args, size_t size)
{
    if (!gsi_readable(tape, GS_OP_recompute, x))
        return &tape->poison.value;
    if (!run || (size > 0 && !args))
        return gs_tape_fail(tape, GS_ENULL, "recompute: there is nothing to run, or no arguments");
    if (!tape->config.recompute || !tape->training || tape->where != GSI_OUTSIDE)
        return run(args, tape, x);
    const state before = state_of(tape, x);
    tape->where = GSI_FIRST_RUN;
    gsi_node_of(x)->low = NULL;
    gs_value *result = run(args, tape, x);
    leave(tape, x, &before);

    gs_value *y = &tape->poison.value;
    if (gsi_readable(tape, GS_OP_recompute, result) && tape->error.status == GS_OK)
        y = gsi_value(tape, result->dtype, result->rank, result->shape);
    if (!gsi_poisoned(y)) {
        memcpy(gsi_node_of(y)->data, result->data, y->count * gsi_size_of(y->dtype));
        /* Whether a gradient is needed its result knows; x may need none. */
        recompute_op *op = gsi_record(tape, GS_OP_recompute, sizeof *op, y, result, NULL, NULL);
        void *copy = op ? gsi_step_new(tape, size, 1) : NULL;
        if (copy) {
            if (size > 0)
                memcpy(copy, args, size);
            op->op.in[0] = x;
            op->run = run;
            op->args = copy;
            op->before = before;
            gsi_keep(x);
        }
    }
    empty(tape);
    return y;
}

void gsi_recompute_backward(gs_tape *t, gsi_op *record)
{
    const recompute_op *op = (const recompute_op *)record;
    gs_value *x = record->in[0];
    const state before = state_of(t, x);
    t->where = GSI_SECOND_RUN;
    t->last = NULL;
    t->dropouts = op->before.dropouts;
    t->layer = op->before.layer;
    t->layer_count = op->before.layer_count;
    gsi_node_of(x)->low = NULL;
    gs_value *result = op->run(op->args, t, x);
    if (gsi_readable(t, GS_OP_recompute, result) && t->error.status == GS_OK) {
        gsi_share(t, result, record->out);
        gsi_backward(t, t->last);
    }
    gsi_run_op(t, GS_OP_recompute);
    leave(t, x, &before);
    t->last = before.last;
    t->dropouts = before.dropouts;
    t->layer = before.layer;
    t->layer_count = before.layer_count;
    gsi_promote(t, x);
    empty(t);
}

/* Autocast: which type an operation computes in, and the casts that get it there. */
#include "engine/engine.h"

static gs_dtype operand_type(const gs_tape *t, gs_op op, gs_dtype is)
{
    switch (gs_op_class(op)) {
    case GS_CLASS_LOW:
        return t->config.mode == GS_O0 ? GS_F32 : t->config.half;
    case GS_CLASS_STORED:
        return t->config.mode <= GS_O1 ? is : t->config.half;
    default:
        return is;
    }
}

gs_dtype gsi_result_type(const gs_tape *t, gs_op op, gs_dtype a, gs_dtype b)
{
    switch (gs_op_class(op)) {
    case GS_CLASS_F32:
        return t->config.mode <= GS_O1 ? GS_F32 : a;
    case GS_CLASS_WIDEST:
        return a == b ? a : GS_F32; /* f16 and bf16 have nothing else in common */
    default:
        return a;
    }
}

/* A weight seen through its half copy: its gradient is the weight's own. */
static gs_value *copy_of(gs_tape *t, gs_value *x)
{
    gsi_node *v = gsi_step_new(t, 1, sizeof *v);
    if (!v)
        return &t->poison.value;
    *v = *gsi_node_of(x);
    v->value.dtype = x->weight->copy_dtype;
    v->value.data = x->weight->copy;
    return &v->value;
}

gs_value *gsi_operand(gs_tape *t, gs_op op, gs_value *x)
{
    if (!gsi_readable(t, op, x))
        return &t->poison.value;
    const gs_dtype want = operand_type(t, op, x->dtype);
    if (x->dtype == want)
        return x;
    gs_value **low = &gsi_node_of(x)->low;
    if (!*low) {
        const bool has_copy = x->weight && x->weight->copy && x->weight->copy_dtype == want;
        *low = has_copy ? copy_of(t, x) : gs_cast(t, x, want);
        gsi_run_op(t, op);
    }
    return *low;
}

gs_value *gs_cast(gs_tape *tape, gs_value *x, gs_dtype dtype)
{
    if (!gsi_readable(tape, GS_OP_cast, x))
        return &tape->poison.value;
    if (x->dtype == dtype)
        return x;
    if (dtype != GS_F32 && dtype != GS_F16 && dtype != GS_BF16)
        return gs_tape_fail(tape, GS_EDTYPE, "cast: f32, f16 and bf16 are possible");
    gs_value *out = gsi_value(tape, dtype, x->rank, x->shape);
    if (gsi_poisoned(out))
        return out;
    const gs_tensor from = gs_tensor_source(x->data, x->count, x->dtype, NULL);
    const gs_tensor to = {gsi_node_of(out)->data, x->count, dtype, NULL, 0};
    gsi_demand(tape, gs_tensors_convert(tape->ctx, &to, &from, 1, NULL));
    gsi_record(tape, GS_OP_cast, sizeof(gsi_op), out, x, NULL, NULL);
    return out;
}

void gsi_cast_backward(gs_tape *t, gsi_op *op)
{
    gsi_accumulate(t, op->in[0], op->out->grad, op->out->dtype);
}

gs_value *gs_reshape(gs_tape *tape, gs_value *x, int rank, const size_t *shape)
{
    char have[96], want[96];
    if (!gsi_readable(tape, GS_OP_reshape, x))
        return &tape->poison.value;
    if (rank < 0 || rank > 4 || (rank > 0 && !shape))
        return gs_tape_fail(tape, GS_ERANGE, "reshape: %s to %d dimensions%s: 0 to 4 are possible",
                            gsi_shape(have, x), rank, shape ? "" : " without sizes");
    gsi_node *node = gsi_step_new(tape, 1, sizeof *node);
    if (!node)
        return &tape->poison.value;
    gs_value *out = &node->value;
    *node = (gsi_node){.value = {.dtype = x->dtype, .rank = rank, .count = 1, .data = x->data},
                       .alias = x};
    bool fits = true;
    for (int i = 0; i < rank; i++) {
        out->shape[i] = shape[i];
        fits &= gsi_mul_size(&out->count, out->count, shape[i]);
    }
    if (!fits || out->count != x->count)
        return gs_tape_fail(tape, GS_ESIZE, "reshape: %s does not become %s", gsi_shape(have, x),
                            gsi_shape(want, out));
    gsi_record(tape, GS_OP_reshape, sizeof(gsi_op), out, x, NULL, NULL);
    return out;
}

void gsi_reshape_backward(gs_tape *t, gsi_op *op) { gsi_share(t, op->in[0], op->out); }

/* Elementwise row kernels: a template, see tmpl_vec.h. */

typedef enum map_op { COPY, RELU, GELU, GELU_ERF, SILU, EXP, LOG, TANH, ERF, SIGMOID } map_op;

INLINE vf apply(map_op op, vf x)
{
    switch (op) {
    case COPY:
        return x;
    case RELU:
        return select(x <= 0.0f, (vf){0}, x);
    case GELU:
        return gelu_f32(x);
    case GELU_ERF:
        return gelu_erf_f32(x);
    case SILU:
        return silu_f32(x);
    case EXP:
        return exp_f32(x);
    case LOG:
        return log_f32(x);
    case TANH:
        return tanh_f32(x);
    case ERF:
        return erf_f32(x);
    default:
        return sigmoid_f32(x);
    }
}

INLINE uint32_t map(gsi_out y, gsi_in x, size_t n, map_op op)
{
    tally counted;
    sink s = sink_of(y, &counted);
    for (size_t i = 0; i < n; i += LANES) {
        const size_t m = left(n, i);
        pack p = load(x, i, m);
        EACH_VEC (k)
            p.v[k] = apply(op, p.v[k]);
        store(&s, i, m, p);
    }
    return sink_end(&s);
}

INLINE uint32_t map_backward(gsi_out dx, gsi_in dy, gsi_in x, size_t n, map_op op)
{
    tally counted;
    sink s = sink_of(dx, &counted);
    for (size_t i = 0; i < n; i += LANES) {
        const size_t m = left(n, i);
        const pack p = load(x, i, m);
        pack d = load(dy, i, m);
        EACH_VEC (k) {
            if (op == RELU)
                d.v[k] = select(p.v[k] <= 0.0f, (vf){0}, d.v[k]);
            else if (op == GELU)
                d.v[k] = d.v[k] * gelu_derivative_f32(p.v[k]);
            else if (op == GELU_ERF)
                d.v[k] = d.v[k] * gelu_erf_derivative_f32(p.v[k]);
            else
                d.v[k] = d.v[k] * silu_derivative_f32(p.v[k]);
        }
        store(&s, i, m, d);
    }
    return sink_end(&s);
}

TARGET static uint32_t KERNEL(copy)(gsi_out y, gsi_in x, size_t n) { return map(y, x, n, COPY); }
TARGET static uint32_t KERNEL(relu)(gsi_out y, gsi_in x, size_t n) { return map(y, x, n, RELU); }
TARGET static uint32_t KERNEL(gelu)(gsi_out y, gsi_in x, size_t n) { return map(y, x, n, GELU); }
TARGET static uint32_t KERNEL(gelu_erf)(gsi_out y, gsi_in x, size_t n)
{
    return map(y, x, n, GELU_ERF);
}
TARGET static uint32_t KERNEL(silu)(gsi_out y, gsi_in x, size_t n) { return map(y, x, n, SILU); }
TARGET static uint32_t KERNEL(exp)(gsi_out y, gsi_in x, size_t n) { return map(y, x, n, EXP); }
TARGET static uint32_t KERNEL(log)(gsi_out y, gsi_in x, size_t n) { return map(y, x, n, LOG); }
TARGET static uint32_t KERNEL(tanh)(gsi_out y, gsi_in x, size_t n) { return map(y, x, n, TANH); }
TARGET static uint32_t KERNEL(erf)(gsi_out y, gsi_in x, size_t n) { return map(y, x, n, ERF); }
TARGET static uint32_t KERNEL(sigmoid)(gsi_out y, gsi_in x, size_t n)
{
    return map(y, x, n, SIGMOID);
}

TARGET static uint32_t KERNEL(relu_backward)(gsi_out dx, gsi_in dy, gsi_in x, size_t n)
{
    return map_backward(dx, dy, x, n, RELU);
}

TARGET static uint32_t KERNEL(gelu_backward)(gsi_out dx, gsi_in dy, gsi_in x, size_t n)
{
    return map_backward(dx, dy, x, n, GELU);
}

TARGET static uint32_t KERNEL(gelu_erf_backward)(gsi_out dx, gsi_in dy, gsi_in x, size_t n)
{
    return map_backward(dx, dy, x, n, GELU_ERF);
}

TARGET static uint32_t KERNEL(silu_backward)(gsi_out dx, gsi_in dy, gsi_in x, size_t n)
{
    return map_backward(dx, dy, x, n, SILU);
}

/* ---- two sources ---- */

typedef enum pair_op { ADD, MUL, SUB_SCALED } pair_op;

/* s[first + i] = a[i] op b[i] */
INLINE void zip(sink *s, size_t first, gsi_in a, gsi_in b, size_t n, pair_op op, float factor)
{
    for (size_t i = 0; i < n; i += LANES) {
        const size_t m = left(n, i);
        pack p = load(a, i, m);
        const pack q = load(b, i, m);
        EACH_VEC (k) {
            if (op == ADD)
                p.v[k] += q.v[k];
            else if (op == MUL)
                p.v[k] *= q.v[k];
            else
                p.v[k] = (p.v[k] - q.v[k]) * factor;
        }
        store(s, first + i, m, p);
    }
}

INLINE uint32_t zip_all(gsi_out y, gsi_in a, gsi_in b, size_t n, pair_op op, float factor)
{
    tally counted;
    sink s = sink_of(y, &counted);
    zip(&s, 0, a, b, n, op, factor);
    return sink_end(&s);
}

INLINE uint32_t zip_rows(gsi_out y, gsi_in a, gsi_in row, size_t rows, size_t cols, pair_op op)
{
    tally counted;
    sink s = sink_of(y, &counted);
    for (size_t r = 0; r < rows; r++)
        zip(&s, r * cols, gsi_in_at(a, r * cols), row, cols, op, 1);
    return sink_end(&s);
}

TARGET static uint32_t KERNEL(add)(gsi_out y, gsi_in a, gsi_in b, size_t n)
{
    return zip_all(y, a, b, n, ADD, 1);
}

TARGET static uint32_t KERNEL(mul)(gsi_out y, gsi_in a, gsi_in b, size_t n)
{
    return zip_all(y, a, b, n, MUL, 1);
}

TARGET static uint32_t KERNEL(difference)(gsi_out y, gsi_in a, gsi_in b, size_t n, float factor)
{
    return zip_all(y, a, b, n, SUB_SCALED, factor);
}

TARGET static uint32_t KERNEL(add_row)(gsi_out y, gsi_in a, gsi_in row, size_t rows, size_t cols)
{
    return zip_rows(y, a, row, rows, cols, ADD);
}

TARGET static uint32_t KERNEL(mul_row)(gsi_out y, gsi_in a, gsi_in row, size_t rows, size_t cols)
{
    return zip_rows(y, a, row, rows, cols, MUL);
}

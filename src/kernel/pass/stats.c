#include "kernel/fpenv.h"
#include "kernel/kernel.h"

void gs_stats_init(gs_stats *stats)
{
    *stats = (gs_stats){.bad_tensor = GS_NONE, .bad_index = GS_NONE};
}

static void merge_floats(gs_stats *into, const gs_stats *from)
{
    if (from->amax > into->amax)
        into->amax = from->amax;
    into->sumsq += from->sumsq;
}

void gs_stats_merge(gs_stats *into, const gs_stats *from)
{
    into->elements += from->elements;
    into->inf += from->inf;
    into->nan += from->nan;
    into->zero += from->zero;
    into->subnormal += from->subnormal;
    into->underflow += from->underflow;
    if (gsi_fpenv_usual()) { /* else a step of a scaler would spend its time on modes */
        merge_floats(into, from);
    } else {
        const uint64_t env = gsi_fpenv_enter();
        merge_floats(into, from);
        gsi_fpenv_leave(env);
    }
    if (from->bad_tensor < into->bad_tensor ||
        (from->bad_tensor == into->bad_tensor && from->bad_index < into->bad_index)) {
        into->bad_tensor = from->bad_tensor;
        into->bad_index = from->bad_index;
    }
}

int gs_stats_finite(const gs_stats *stats) { return stats->inf == 0 && stats->nan == 0; }

gsi_limits gsi_limits_of(gs_dtype type)
{
    static const gsi_limits f32 = {1, 0x00800000, GSI_F32_INF};
    static const gsi_limits f16 = {0x33000001, 0x387FE000, 0x477FF000};
    static const gsi_limits bf16 = {0x00008001, 0x007F8000, 0x7F7F8000};
    return type == GS_F32 ? f32 : type == GS_F16 ? f16 : bf16;
}

/* The one place where const is lost: no pass writes to what is not a destination. */
gs_tensor gs_tensor_source(const void *data, size_t count, gs_dtype dtype, const char *name)
{
    const union {
        const void *read;
        void *data;
    } at = {data};
    return (gs_tensor){at.data, count, dtype, name, 0};
}

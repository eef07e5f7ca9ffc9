/* The passes as a caller built with -ffast-math calls them (see the Makefile). */
#include "passes.h"

int fastmath_run_all(gs_context *ctx, const pass_data *d, digests *out);

int fastmath_run_all(gs_context *ctx, const pass_data *d, digests *out)
{
    return pass_run_all(ctx, d, out);
}

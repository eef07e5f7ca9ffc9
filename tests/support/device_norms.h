/* device_norms.h: LAMB's norms beyond 4096 chunks, which no test has the memory for: the second half of a step over
 * one weight that claims to be that large, with norms that tell whether groups were folded. */
#ifndef DEVICE_NORMS_H
#define DEVICE_NORMS_H

#include "test.h"

#include "device/device.h"

#include <math.h>

/* The weight after the step: 1 - lr, where lr is the trust ratio. */
static inline float norms_step(gs_device *d, uint32_t chunks, float tail)
{
    enum { M = 1 << 12 };
    const double middle = 1 + 0x1p-24; /* of 1 and the f32 above: more than it rounds up */
    gsd_norms *norms = calloc(chunks, sizeof *norms);
    norms[0] = (gsd_norms){middle * middle * 0x1p+60, 0x1p+60};
    for (uint32_t i = M; i < chunks; i++)
        norms[i].weight = (double)tail; /* each is lost beside 2^60; 4096 of them are not */
    float weight = 1, zero = 0;
    gsd_tensor tensor = {.count = 1,
                         .lr_factor = 1,
                         .decay = 1,
                         .chunks = chunks,
                         .grad_type = GS_F32,
                         .weight_type = GS_F32,
                         .copy_type = GSD_NO_COPY};
    const gsd_chunk chunk = {0};
    const gsd_settings settings = {.rows = 1, .chunks = 1, .ranks = 1, .limit = INFINITY};
    const gsd_row row = {.lr = 1, .unbias = 1, .root = 1, .gain = 1};
    const gsd_state state = {.apply = 1, .t = 1, .unscale = 1};
    const gsd_report report = {0};
    const struct {
        gsi_device_argument which;
        const void *data;
        size_t bytes;
    } arrays[] = {{GSD_ARG_GRAD, &zero, sizeof zero},
                  {GSD_ARG_WEIGHT, &weight, sizeof weight},
                  {GSD_ARG_M, &zero, sizeof zero},
                  {GSD_ARG_V, &zero, sizeof zero},
                  {GSD_ARG_CHUNKS, &chunk, sizeof chunk},
                  {GSD_ARG_SETTINGS, &settings, sizeof settings},
                  {GSD_ARG_ROWS, &row, sizeof row},
                  {GSD_ARG_STATE, &state, sizeof state},
                  {GSD_ARG_NORMS, norms, chunks * sizeof *norms},
                  {GSD_ARG_REPORTS, &report, sizeof report},
                  {GSD_ARG_TENSORS, &tensor, sizeof tensor}}; /* last: it knows the others */
    gs_device_ptr at[GSD_ARG_COUNT] = {{0}};
    gs_error error = {0};
    for (size_t i = 0; i < GSI_COUNT(arrays); i++) {
        gs_device_ptr *p = &at[arrays[i].which];
        if (arrays[i].which == GSD_ARG_TENSORS && !d->offsets) {
            tensor.grad = at[GSD_ARG_GRAD].offset;
            tensor.weight = at[GSD_ARG_WEIGHT].offset;
            tensor.m = at[GSD_ARG_M].offset;
            tensor.v = at[GSD_ARG_V].offset;
        }
        CHECK(gs_device_alloc(p, d, arrays[i].bytes, NULL) == GS_OK);
        CHECK(gs_device_write(d, *p, arrays[i].data, arrays[i].bytes, NULL, NULL) == GS_OK);
    }
    const gsi_launch launch = {.kernel = GSD_lamb_step, .blocks = 1, .arguments = at};
    CHECK_MSG(d->backend->launch(d, &launch, NULL, &error) == GS_OK, "%s", error.text);
    CHECK(gs_device_read(&weight, d, at[GSD_ARG_WEIGHT], sizeof weight, NULL, NULL) == GS_OK);
    for (size_t i = 0; i < GSI_COUNT(arrays); i++)
        gs_device_release(d, at[arrays[i].which]);
    free(norms);
    return weight;
}

static inline void device_norms(gs_device *d)
{
    CHECK(norms_step(d, 4096, 64) == 0);           /* one group: the trust ratio rounds to 1 */
    CHECK(norms_step(d, 4097, 64) == 0);           /* a second of one chunk is lost, too */
    CHECK(norms_step(d, 4097, 4096) == -0x1p-23f); /* unless it is large */
    CHECK(norms_step(d, 8192, 64) == -0x1p-23f);   /* its sum is not lost */
    CHECK(norms_step(d, 9000, 64) == -0x1p-23f);
    CHECK(norms_step(d, 9000, 0) == 0);
}

#endif

/* device_norms.h: LAMB's norms, by launches of its kernels alone. Beyond 4096 chunks, which no
 * test has the memory for: the second half of a step over one weight that claims to be that
 * large, with norms that tell whether groups were folded. And the first half's, to the last bit. */
#ifndef DEVICE_NORMS_H
#define DEVICE_NORMS_H

#include "test.h"

#include "device/device.h"

#include <math.h>

/* One block of `kernel` over one weight: w[0..count) of a type, no gradient, no moments; with
 * decay 1, so that the direction is the weight. `chunks` is what it claims to have. w and norms
 * are written and read back. */
static inline void norms_launch(gs_device *d, gsi_device_kernel kernel, void *w, size_t count,
                                gs_dtype type, gsd_norms *norms, uint32_t chunks)
{
    const size_t w_bytes = count * (type == GS_F32 ? 4 : 2);
    float *zeros = calloc(count, sizeof *zeros);
    gsd_tensor tensor = {.count = count,
                         .lr_factor = 1,
                         .decay = 1,
                         .chunks = chunks,
                         .grad_type = GS_F32,
                         .weight_type = (uint32_t)type,
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
    } arrays[] = {{GSD_ARG_GRAD, zeros, count * sizeof *zeros},
                  {GSD_ARG_WEIGHT, w, w_bytes},
                  {GSD_ARG_M, zeros, count * sizeof *zeros},
                  {GSD_ARG_V, zeros, count * sizeof *zeros},
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
    const gsi_launch launch = {.kernel = kernel, .blocks = 1, .arguments = at};
    CHECK_MSG(d->backend->launch(d, &launch, NULL, &error) == GS_OK, "%s", error.text);
    CHECK(gs_device_read(w, d, at[GSD_ARG_WEIGHT], w_bytes, NULL, NULL) == GS_OK);
    CHECK(gs_device_read(norms, d, at[GSD_ARG_NORMS], chunks * sizeof *norms, NULL, NULL) == GS_OK);
    for (size_t i = 0; i < GSI_COUNT(arrays); i++)
        gs_device_release(d, at[arrays[i].which]);
    free(zeros);
}

/* The weight after the step: 1 - lr, where lr is the trust ratio. */
static inline float norms_step(gs_device *d, uint32_t chunks, float tail)
{
    const double middle = 1 + 0x1p-24; /* of 1 and the f32 above: more than it rounds up */
    gsd_norms *norms = calloc(chunks, sizeof *norms);
    float weight = 1;
    norms[0] = (gsd_norms){middle * middle * 0x1p+60, 0x1p+60};
    for (uint32_t i = GSD_GROUP; i < chunks; i++)
        norms[i].weight = (double)tail; /* each is lost beside 2^60; 4096 of them are not */
    norms_launch(d, GSD_lamb_step, &weight, 1, GS_F32, norms, chunks);
    free(norms);
    return weight;
}

/* The norms of a chunk to the last bit of f64, which steps in f32 would not show: 32 lanes,
 * folded in halves at the end or, where weights are halves, after every 1024 elements. */
static inline void norms_chunk(gs_device *d, gs_dtype type, uint32_t random)
{
    enum { COUNT = 5000 };
    float f32[COUNT];
    uint16_t halves[COUNT];
    double total = 0, lanes[32] = {0};
    gsd_norms norms = {0};
    for (size_t i = 0; i < COUNT; i++) {
        random = random * 1664525u + 1013904223u;
        f32[i] = ldexpf((float)(random >> 8) + 1, -24 - (int)(random & 7));
        halves[i] = gs_f32_to_bf16(f32[i]);
        if (type != GS_F32)
            f32[i] = gs_bf16_to_f32(halves[i]);
        lanes[i % 32] += (double)f32[i] * (double)f32[i];
        if (i == COUNT - 1 || (type != GS_F32 && i % 1024 == 1023)) {
            for (int width = 16; width > 0; width /= 2)
                for (int t = 0; t < width; t++)
                    lanes[t] += lanes[t + width];
            total += lanes[0];
            memset(lanes, 0, sizeof lanes);
        }
    }
    norms_launch(d, GSD_lamb, type == GS_F32 ? (void *)f32 : (void *)halves, COUNT, type, &norms,
                 1);
    CHECK_MSG(norms.weight == total && norms.direction == total, "%a and %a, not %a", norms.weight,
              norms.direction, total);
}

static inline void device_norms(gs_device *d)
{
    CHECK(norms_step(d, 4096, 64) == 0);           /* one group: the trust ratio rounds to 1 */
    CHECK(norms_step(d, 4097, 64) == 0);           /* a second of one chunk is lost, too */
    CHECK(norms_step(d, 4097, 4096) == -0x1p-23f); /* unless it is large */
    CHECK(norms_step(d, 8192, 64) == -0x1p-23f);   /* its sum is not lost */
    CHECK(norms_step(d, 9000, 64) == -0x1p-23f);
    CHECK(norms_step(d, 9000, 0) == 0);
    for (uint32_t seed = 0; seed < 20; seed++) { /* one order may give another's bits by chance */
        norms_chunk(d, GS_F32, seed);
        norms_chunk(d, GS_BF16, seed);
    }
}

#endif

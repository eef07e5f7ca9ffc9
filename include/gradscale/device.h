/* device.h: scan, decide and step where the gradients are, in a library of its own,
 * libgradscale_device. No word goes to the host and nothing waits:
 *
 *     gs_device_create(&device, &config, &error);          a context of the caller's, or ours
 *     gs_device_plan_create(&plan, device, weights, n, &settings, &error);
 *     for each batch
 *         ... forward; backward of the loss times the first of gs_device_plan_words, on `queue` ...
 *         gs_device_step(plan, queue, &error);             three launches
 *         while (gs_device_poll(&report, plan)) ...        late, and complete
 *
 * Weights, moments, copies, statistics, scale and counters have the bits of gs_optim_step on a CPU.
 * doc/devices.md says what was proven where.
 *
 * Nothing is linked: libcuda.so.1 or libOpenCL.so.1 is opened when a device is made. A `queue` is a
 * CUstream (cudaStream_t) or a cl_command_queue in order; NULL is CUDA's default stream, and for
 * OpenCL a queue of the device's own. Calls with a queue only enqueue, and can be captured in a
 * CUDA graph; those that wait say so. Errors are found before anything is enqueued. A device and
 * its plans serve one thread at a time.
 */
#ifndef GRADSCALE_DEVICE_H
#define GRADSCALE_DEVICE_H

#include "gradscale/optim.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- devices ---- */

#define GS_DEVICE_KINDS(X)                                                           \
    X(HOST, "host") /* the same kernels as loops: for tests, and without a device */ \
    X(CUDA, "cuda")                                                                  \
    X(OPENCL, "opencl")

typedef enum gs_device_kind {
#define X(id, name) GS_DEVICE_##id,
    GS_DEVICE_KINDS(X)
#undef X
        GS_DEVICE_KIND_COUNT
} gs_device_kind;
GS_API const char *gs_device_kind_name(gs_device_kind kind);

typedef struct gs_device_config {
    size_t size; /* sizeof(gs_device_config) */
    gs_device_kind kind;
    unsigned index;      /* where `context` is NULL: which device, its primary context for CUDA */
    void *context;       /* the caller's CUcontext or cl_context; NULL: one of the library's */
    void *device;        /* the caller's cl_device_id, with `context` */
    const char *library; /* NULL: libcuda.so.1, libOpenCL.so.1 */
    const char *rtc;     /* NULL: libnvrtc.so of CUDA 13, 12 or 11 */
    const char *cache;   /* a folder for compiled kernels; NULL: none */
    const char *code;    /* PTX, or source for OpenCL, in place of the library's; NULL: that */
    gs_alloc alloc;      /* for memory of the host; resize NULL: malloc */
} gs_device_config;

typedef struct gs_device gs_device; /* compiled kernels; none of the caller's memory */

typedef struct gs_device_info {
    gs_device_kind kind;
    char name[128], driver[64];
    uint64_t memory; /* bytes */
    int has_f64;     /* without it there is no gs_device */
    char kernels
        [32]; /* of a gs_device: "embedded PTX", "NVRTC", "clBuildProgram", "cache", "loops" */
} gs_device_info;

/* All devices of a kind: list[0..room), *n of them in all. */
GS_API gs_status gs_device_list(gs_device_info *list, size_t room, size_t *n,
                                const gs_device_config *config, gs_error *error);

GS_API gs_status gs_device_create(gs_device **out, const gs_device_config *config, gs_error *error);
GS_API void gs_device_free(gs_device *device); /* after its plans */
GS_API gs_device_info gs_device_get_info(const gs_device *device);

/* ---- memory ---- */

/* CUDA: {NULL, CUdeviceptr}; host: {NULL, address}; OpenCL: {cl_mem, bytes from its start}. */
typedef struct gs_device_ptr {
    void *base;
    uint64_t offset;
} gs_device_ptr;

/* For programs that have no allocator of their own. alloc waits; write and read wait for the
 * queue. */
GS_API gs_status gs_device_alloc(gs_device_ptr *out, gs_device *device, size_t bytes,
                                 gs_error *error);
GS_API void gs_device_release(gs_device *device, gs_device_ptr memory);
GS_API gs_status gs_device_write(gs_device *device, gs_device_ptr to, const void *from,
                                 size_t bytes, void *queue, gs_error *error);
GS_API gs_status gs_device_read(void *to, gs_device *device, gs_device_ptr from, size_t bytes,
                                void *queue, gs_error *error);
GS_API gs_status gs_device_copy(gs_device *device, gs_device_ptr to, gs_device_ptr from,
                                size_t bytes, void *queue, gs_error *error);
GS_API gs_status gs_device_wait(gs_device *device, void *queue, gs_error *error);

/* ---- plans ---- */

/* A weight and its gradient, in device memory, aligned to their elements. With OpenCL all arrays of
 * one column lie in one cl_mem. */
typedef struct gs_device_weight {
    const char *name; /* for error messages; NULL: its number */
    size_t count;
    gs_device_ptr data; /* stepped: f32, a master; or f16, bf16, trained without one */
    gs_dtype dtype;
    gs_dtype copy_dtype; /* as gs_weight has it */
    gs_device_ptr copy;  /* written every step; {0}: none */
    gs_device_ptr grad;  /* scaled */
    gs_dtype grad_dtype;
    unsigned flags;    /* GS_NO_DECAY */
    gs_device_ptr out; /* f32: GS_UNSCALE_TO_F32 writes here, and the optimizer reads it */
    double lr_factor;  /* on lr; 0: 1 */
} gs_device_weight;

typedef enum gs_device_unscale {
    GS_UNSCALE_FUSED,    /* the optimizer unscales as it reads; gradients stay as they are */
    GS_UNSCALE_IN_PLACE, /* the scan overwrites the gradients */
    GS_UNSCALE_TO_F32,   /* the scan writes gs_device_weight.out */
    GS_UNSCALE_COUNT
} gs_device_unscale;

typedef struct gs_device_plan_config {
    size_t size;                  /* sizeof(gs_device_plan_config) */
    const gs_optim_config *optim; /* sgd, adam, adamw or lamb; moments in f32; no ema, no kahan */
    const gs_scaler *scaler; /* a preset, static:S, guard, headroom or none; on_overflow=skip */
    uint64_t steps;          /* applied steps that are planned; 0: 100,000. 24 bytes each */
    gs_device_unscale unscale;
    int count; /* zero, subnormal and underflow are counted, with respect to count_half */
    gs_dtype count_half;
    unsigned rank, ranks; /* ranks 0: 1 */
} gs_device_plan_config;

/* The list with its chunks, the moments (zero at first), the scaler, and learning rates and bias
 * corrections for `steps` steps, all on the device. Waits. The arrays stay the caller's. */
typedef struct gs_device_plan gs_device_plan;
GS_API gs_status gs_device_plan_create(gs_device_plan **out, gs_device *device,
                                       const gs_device_weight *list, size_t n,
                                       const gs_device_plan_config *config, gs_error *error);
/* Waits for what was enqueued: the last queue is there still. */
GS_API void gs_device_plan_free(gs_device_plan *plan);

/* One step: scan, decide, act, and the report on its way. Not with several ranks. */
GS_API gs_status gs_device_step(gs_device_plan *plan, void *queue, gs_error *error);

/* Its parts: scan, decide, act, each once for a batch, for a second act would step again. act
 * brings the reports; where an optimizer of the caller's steps in its place, gs_device_save tells.
 * With several ranks: scan; fold; gather 80 bytes per rank over all, in rank order, into
 * gs_device_plan_gathered, by ncclAllGather or MPI; decide, on every rank the same; act. */
GS_API gs_status gs_device_scan(gs_device_plan *plan, void *queue, gs_error *error);
GS_API gs_status gs_device_fold(gs_device_plan *plan, void *queue, gs_error *error);
GS_API gs_status gs_device_decide(gs_device_plan *plan, void *queue, gs_error *error);
GS_API gs_status gs_device_act(gs_device_plan *plan, void *queue, gs_error *error);

/* The copies anew from the weights, to nearest; or stochastically, with the bits of
 * gs_tensors_convert_stochastic. */
GS_API gs_status gs_device_cast(gs_device_plan *plan, void *queue, gs_error *error);
GS_API gs_status gs_device_cast_stochastic(gs_device_plan *plan, uint64_t seed, void *queue,
                                           gs_error *error);

/* In device memory, four f32: the scale of the step that comes, its inverse; and of the step that
 * was, 1 or 0: found_inf, applied. The first and third are what PyTorch's fused optimizers take:
 * found_inf is 1 whenever a step is not applied. */
GS_API gs_device_ptr gs_device_plan_words(const gs_device_plan *plan);
/* In device memory: gs_stats of every rank. */
GS_API gs_device_ptr gs_device_plan_gathered(const gs_device_plan *plan);
/* In device memory, f32: GS_SLOT_M or GS_SLOT_V of weight t; {0}: there is none. */
GS_API gs_device_ptr gs_device_plan_slot(const gs_device_plan *plan, size_t t, gs_slot slot);

/* ---- reports ---- */

typedef struct gs_device_report {
    uint64_t step;         /* number of the attempt, from 1 */
    double scale;          /* that it had */
    gs_stats stats;        /* of the scaled gradients */
    gs_optim_report optim; /* weight_amax is 0 where nothing was applied */
    int exhausted;         /* the plan's steps are used up, and nothing was done: gs_device_load */
} gs_device_report;

/* The next report that has arrived, oldest first: 1; 0: none. Never waits. 64 steps are kept. */
GS_API int gs_device_poll(gs_device_report *report, gs_device_plan *plan);

/* ---- state, for checkpoints ---- */

/* The scaler and the counters as gs_optim_step would have left them. Waits for the queue. */
GS_API gs_status gs_device_save(gs_scaler *scaler, gs_optim_state *state, gs_device_plan *plan,
                                void *queue, gs_error *error);
/* And back; learning rates are planned anew from state.applied on. Waits. */
GS_API gs_status gs_device_load(gs_device_plan *plan, const gs_scaler *scaler,
                                const gs_optim_state *state, void *queue, gs_error *error);

#ifdef __cplusplus
}
#endif

#endif

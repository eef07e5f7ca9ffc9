/* context.h: which kernels, which threads, which memory, and the last error.
 *
 *     gs_context *ctx;
 *     gs_error error;
 *     if (gs_context_create(&ctx, NULL, &error) != GS_OK)
 *         puts(error.text);
 *
 * Passes, matrix products, optimizers, tapes and trainers are given a context or made from one. It
 * keeps the error message of the last call that failed: gs_context_error.
 */
#ifndef GRADSCALE_CONTEXT_H
#define GRADSCALE_CONTEXT_H

#include "gradscale/num.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Instruction sets, lowest first. The C reference needs none of them. */
#define GS_CPUS(X)                                      \
    X(AVX2, "avx2")             /* with FMA and F16C */ \
    X(AVX512, "avx512")         /* F, BW, DQ, VL */     \
    X(NEON, "neon")             /* AArch64 */           \
    X(AVX512BF16, "avx512bf16") /* on top of avx512 */  \
    X(AVX512VNNI, "avx512vnni") /* on top of avx512: INT8 */

enum gs_cpu_index {
#define X(id, name) GS_CPU_INDEX_##id,
    GS_CPUS(X)
#undef X
        GS_CPU_COUNT
};
enum gs_cpu {
#define X(id, name) GS_CPU_##id = 1 << GS_CPU_INDEX_##id,
    GS_CPUS(X)
#undef X
};

GS_API unsigned gs_cpu_detect(void);               /* what this machine and its kernel offer */
GS_API const char *gs_cpu_name(unsigned one_flag); /* NULL: no such flag */

typedef struct gs_context gs_context;

typedef struct gs_config {
    size_t size;          /* sizeof(gs_config) */
    gs_alloc alloc;       /* .resize NULL: malloc */
    gs_parallel parallel; /* .run NULL: a pool of our own */
    unsigned threads;     /* of that pool, the caller counted, up to 4096; 0: gs_cpus_usable.
                             Of yours: how many bodies it may run at once; 0: not known */
    unsigned without_cpu; /* instruction sets not to use, gs_cpu flags; ~0u: the C reference */
} gs_config;

/* config NULL: all defaults. A context serves one caller at a time. Without one (NULL) passes
 * return GS_ENULL.
 *
 * After fork the threads of a context's own pool exist in the parent only. The child may free its
 * copy of the context, and may use it: its calls then run in the calling thread alone, with the
 * same results, and gs_context_threads says 1. A child that wants threads creates a context of its
 * own. */
GS_API gs_status gs_context_create(gs_context **out, const gs_config *config, gs_error *error);
GS_API void gs_context_free(gs_context *ctx);
GS_API unsigned gs_context_threads(const gs_context *ctx);      /* of our own pool */
GS_API unsigned gs_context_cpu(const gs_context *ctx);          /* the instruction sets in use */
GS_API const gs_error *gs_context_error(const gs_context *ctx); /* of the last failed call */

#ifdef __cplusplus
}
#endif

#endif

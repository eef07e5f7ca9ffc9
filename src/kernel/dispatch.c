/* Which kernels run: the reference, overridden up the ladder of instruction sets as far as the CPU
 * has them. */
#include "kernel/dispatch.h"

enum { FAMILIES = 5 };

#ifndef GSI_WITHOUT_ENGINE
#define ENGINE(rows, gemm, int8) rows, gemm, int8
#else
#define ENGINE(rows, gemm, int8) NULL, NULL, NULL
#endif

/* Lowest first. NULL: the family has nothing for it, and what is below stays. */
static const struct level {
    unsigned cpu;
    gsi_fill_fn *fill[FAMILIES];
} ladder[] = {
    /* clang-format off */
    /*              passes           optimizers         rows                    products, of INT8 */
    {0,             {gsi_pass_ref,    gsi_optim_ref,    ENGINE(gsi_rows_ref,    gsi_gemm_portable, gsi_int8_portable)}},
#if defined(__x86_64__)
    {GS_CPU_AVX2,   {gsi_pass_avx2,   gsi_optim_avx2,   ENGINE(gsi_rows_avx2,   gsi_gemm_avx2, gsi_int8_avx2)}},
    {GS_CPU_AVX512, {gsi_pass_avx512, gsi_optim_avx512, ENGINE(gsi_rows_avx512, gsi_gemm_avx512, gsi_int8_avx512)}},
    {GS_CPU_AVX512 | GS_CPU_AVX512BF16, {NULL, NULL, ENGINE(NULL, gsi_gemm_avx512bf16, NULL)}},
    {GS_CPU_AVX512 | GS_CPU_AVX512VNNI, {NULL, NULL, ENGINE(NULL, NULL, gsi_int8_avx512vnni)}},
#elif defined(__aarch64__)
    {GS_CPU_NEON,   {gsi_pass_neon,   gsi_optim_neon,   ENGINE(gsi_rows_neon,   gsi_gemm_neon, gsi_int8_neon)}},
#endif
    /* clang-format on */
};

void gsi_kernels_init(gsi_kernels *k, unsigned cpu)
{
    *k = (gsi_kernels){0};
    for (size_t l = 0; l < GSI_COUNT(ladder); l++)
        for (int f = 0; f < FAMILIES && (ladder[l].cpu & cpu) == ladder[l].cpu; f++)
            if (ladder[l].fill[f])
                ladder[l].fill[f](k);
#if defined(__x86_64__)
    if ((cpu & GS_CPU_AVX512) && gsi_cpu_is_amd()) {
        gsi_pass_avx512_amd(k);
        gsi_optim_avx512_amd(k);
    }
#endif
}

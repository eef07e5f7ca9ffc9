/* What the kernels need of OpenCL C, CUDA, HIP, or of a host that runs them as loops.
 *
 * Kernels are written in phases. EACH_THREAD(t) { ... } is the work of one thread up to BARRIER:
 * on a device the thread itself, on the host a loop over all 256. So what lives across a phase is
 * SHARED or the same in all threads.
 *
 * Every operation of the kernels is one IEEE operation, rounded once. What that takes:
 *   OpenCL   FP_CONTRACT OFF, -cl-fp32-correctly-rounded-divide-sqrt
 *   CUDA     -fmad=false; ftz, prec-div and prec-sqrt as they are by default
 *   HIP      -ffp-contract=off, -fhip-fp32-correctly-rounded-divide-sqrt
 *   host     -ffp-contract=off */
#ifndef GSI_DEVICE_LANG_H
#define GSI_DEVICE_LANG_H

#define GSD_THREADS 256u

#if defined(__OPENCL_VERSION__) || defined(__OPENCL_C_VERSION__)
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#pragma OPENCL FP_CONTRACT OFF
typedef uchar uint8_t;
typedef ushort uint16_t;
typedef uint uint32_t;
typedef ulong uint64_t;
typedef int int32_t;
typedef long int64_t;
#define INT64_C(x)       x##L
#define UINT64_C(x)      x##UL
#define GLOBAL           __global
#define SHARED           __local
#define SHARED_PTR       __local
#define DEVICE           static inline __attribute__((always_inline))
#define KERNEL           __kernel __attribute__((reqd_work_group_size(GSD_THREADS, 1, 1))) void
#define BLOCK_ID         ((uint32_t)get_group_id(0))
#define THREAD_ID        ((uint32_t)get_local_id(0))
#define BARRIER          barrier(CLK_LOCAL_MEM_FENCE)
#define AT(base, offset) ((base) + (offset))
#define SHARED_MAX(p, x) atomic_max(p, x)
#define SHARED_MIN(p, x) atomic_min(p, x)
#define SHARED_ADD(p, x) atomic_add(p, x)
#define GLOBAL_MAX(p, x) atomic_max(p, x)
#define gsd_bits(x)      as_uint(x)
#define gsd_float(u)     as_float(u)
#define gsd_bits64(x)    as_ulong(x)
#define gsd_double(u)    as_double(u)
#define gsd_sqrtf(x)     sqrt(x)
#define gsd_sqrt(x)      sqrt(x)
typedef half gsd_f16;
#define half                   half_ /* a name like any other in libgradscale */
#define GSD_LOAD_F16(p, i)     vload_half(i, (const GLOBAL gsd_f16 *)(p))
#define GSD_STORE_F16(p, i, x) vstore_half_rte(x, i, (GLOBAL gsd_f16 *)(p))

#elif defined(__CUDACC__) || defined(__CUDACC_RTC__) || defined(__HIP__)
typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef unsigned int uint32_t;
typedef int int32_t;
#if !defined(__CUDACC_RTC__) && !defined(GSD_BARE_HIP)
#include <stdint.h>
#else
typedef unsigned long long uint64_t;
typedef long long int64_t;
#endif
#undef INT64_C
#undef UINT64_C
#define INT64_C(x)  x##LL
#define UINT64_C(x) x##ULL
#define GLOBAL
#define SHARED __shared__
#define SHARED_PTR
#define DEVICE static __device__ __forceinline__
#if defined(__HIP__)
#define KERNEL extern "C" __global__ void __launch_bounds__(256)
#else /* four blocks of 256 to a multiprocessor of 65536 registers: 64 to a thread */
#define KERNEL extern "C" __global__ void __launch_bounds__(256, 4)
#endif
#define BLOCK_ID         ((uint32_t)blockIdx.x)
#define THREAD_ID        ((uint32_t)threadIdx.x)
#define BARRIER          __syncthreads()
/* Offsets are addresses, and the bases NULL. */
#define AT(base, offset) ((uint8_t *)(offset))
#define SHARED_MAX(p, x) atomicMax(p, x)
#define SHARED_MIN(p, x) atomicMin(p, x)
#define SHARED_ADD(p, x) atomicAdd(p, x)
#define GLOBAL_MAX(p, x) atomicMax(p, x)
#define gsd_bits(x)      __float_as_uint(x)
#define gsd_float(u)     __uint_as_float(u)
#define gsd_bits64(x)    ((uint64_t)__double_as_longlong(x))
#define gsd_double(u)    __longlong_as_double((long long)(u))
#define gsd_sqrtf(x)     sqrtf(x)
#define gsd_sqrt(x)      sqrt(x)
#if defined(__HIP__)
DEVICE float gsd_h2f(uint16_t h)
{
    _Float16 x;
    __builtin_memcpy(&x, &h, 2);
    return (float)x;
}
DEVICE uint16_t gsd_f2h(float f)
{
    const _Float16 x = (_Float16)f;
    uint16_t h;
    __builtin_memcpy(&h, &x, 2);
    return h;
}
#else
DEVICE float gsd_h2f(uint16_t h)
{
    float f;
    asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(h));
    return f;
}
DEVICE uint16_t gsd_f2h(float f)
{
    uint16_t h;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(f));
    return h;
}
#endif
#define fmax(a, b)             fmax((double)(a), (double)(b)) /* no overload for int */
#define GSD_LOAD_F16(p, i)     gsd_h2f(((const uint16_t *)(p))[i])
#define GSD_STORE_F16(p, i, x) (((uint16_t *)(p))[i] = gsd_f2h(x))

#else
#include "gradscale/optim.h"
#include "kernel/kernel.h"
#include "scaler/scaler.h"

#include <math.h>
#include <stdint.h>
#include <string.h>
#define GLOBAL
#define SHARED
#define SHARED_PTR
#define DEVICE             static inline
#define KERNEL             static void
#define BARRIER            ((void)0)
/* The block that runs: the host calls a kernel once for each. */
#define BLOCK_ID           (gsd_block)
#define AT(base, offset)   ((void)(base), (uint8_t *)(uintptr_t)(offset))
#define SHARED_MAX(p, x)   (*(p) = *(p) > (x) ? *(p) : (x))
#define SHARED_MIN(p, x)   (*(p) = *(p) < (x) ? *(p) : (x))
#define SHARED_ADD(p, x)   (*(p) += (x))
#define GLOBAL_MAX(p, x)   (*(p) = *(p) > (x) ? *(p) : (x))
#define gsd_bits(x)        gsi_bits(x)
#define gsd_float(u)       gsi_float(u)
#define gsd_sqrtf(x)       sqrtf(x)
#define gsd_sqrt(x)        sqrt(x)
static inline uint64_t gsd_bits64(double x)
{
    uint64_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}
static inline double gsd_double(uint64_t u)
{
    double x;
    memcpy(&x, &u, sizeof x);
    return x;
}
#define GSD_LOAD_F16(p, i) gsi_float(gsi_widen(((const uint16_t *)(p))[i], GSI_ROW_F16))
#define GSD_STORE_F16(p, i, x) \
    (((uint16_t *)(p))[i] = (uint16_t)gsi_narrow(gsi_bits(x), GSI_ROW_F16, GSI_NEAREST, false))
#define GSD_HOST 1
#endif

/* Before a loop that nvcc would unroll at the price of registers. */
#if defined(__CUDACC__) || defined(__CUDACC_RTC__)
#define ROLLED _Pragma("unroll 1")
#else
#define ROLLED
#endif

#ifdef GSD_HOST
#define EACH_THREAD(t) for (uint32_t t = 0; t < GSD_THREADS; t++)
#else
#define EACH_THREAD(t) for (uint32_t t = THREAD_ID, gsd_once = 1; gsd_once; gsd_once = 0)
#endif

#endif

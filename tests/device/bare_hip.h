/* The little of HIP that the kernels need, for a clang without ROCm: suite_device.sh compiles them
 * with it, to see that they compile. Its sqrt is the compiler's own, without ROCm's refinement. */
#define GSD_BARE_HIP         1
#define __device__           __attribute__((device))
#define __global__           __attribute__((global))
#define __shared__           __attribute__((shared))
#define __forceinline__      inline __attribute__((always_inline))
#define __launch_bounds__(n) __attribute__((launch_bounds(n)))
#define threadIdx            (gsd_bare_thread())
#define blockIdx             (gsd_bare_block())
struct gsd_bare_index {
    unsigned x;
};
static __device__ inline gsd_bare_index gsd_bare_thread()
{
    return {__builtin_amdgcn_workitem_id_x()};
}
static __device__ inline gsd_bare_index gsd_bare_block()
{
    return {__builtin_amdgcn_workgroup_id_x()};
}
static __device__ inline void __syncthreads()
{
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
    __builtin_amdgcn_s_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}
#define __float_as_uint(x)      __builtin_bit_cast(unsigned, (float)(x))
#define __uint_as_float(u)      __builtin_bit_cast(float, (unsigned)(u))
#define __double_as_longlong(x) __builtin_bit_cast(long long, (double)(x))
#define __longlong_as_double(u) __builtin_bit_cast(double, (long long)(u))
#define atomicMax(p, x)         __atomic_fetch_max(p, x, __ATOMIC_RELAXED)
#define atomicMin(p, x)         __atomic_fetch_min(p, x, __ATOMIC_RELAXED)
#define atomicAdd(p, x)         __atomic_fetch_add(p, x, __ATOMIC_RELAXED)
#define sqrtf(x)                __builtin_sqrtf(x)
#define sqrt(x)                 __builtin_sqrt(x)
#define isfinite(x)             __builtin_isfinite(x)
#define isnan(x)                __builtin_isnan(x)
#define fmin(a, b)              __builtin_fmin(a, b)
#define trunc(x)                __builtin_trunc(x)
static __device__ inline double fmax(double a, double b) { return __builtin_fmax(a, b); }
/* ROCm's library has it; here only that it compiles matters. */
static __device__ inline double fmod(double a, double b) { return a - b * __builtin_trunc(a / b); }

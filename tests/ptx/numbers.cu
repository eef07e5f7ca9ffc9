/* Conversions and fma as a CUDA programmer writes them: test_ptx.c executes what nvcc makes of
 * it for the oldest and the newest architecture. */
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#define AT                                                    \
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x; \
    if (i >= n)                                               \
    return

extern "C" __global__ void to_f16(unsigned short *to, const float *from, unsigned n)
{
    AT;
    to[i] = __half_as_ushort(__float2half_rn(from[i]));
}

extern "C" __global__ void from_f16(float *to, const unsigned short *from, unsigned n)
{
    AT;
    to[i] = __half2float(__ushort_as_half(from[i]));
}

extern "C" __global__ void to_bf16(unsigned short *to, const float *from, unsigned n)
{
    AT;
    to[i] = __bfloat16_as_ushort(__float2bfloat16_rn(from[i]));
}

extern "C" __global__ void from_bf16(float *to, const unsigned short *from, unsigned n)
{
    AT;
    to[i] = __bfloat162float(__ushort_as_bfloat16(from[i]));
}

extern "C" __global__ void to_f16_pairs(__half2 *to, const float2 *from, unsigned n)
{
    AT;
    to[i] = __floats2half2_rn(from[i].x, from[i].y);
}

extern "C" __global__ void to_bf16_pairs(__nv_bfloat162 *to, const float2 *from, unsigned n)
{
    AT;
    to[i] = __floats2bfloat162_rn(from[i].x, from[i].y);
}

extern "C" __global__ void fma_f32(float *to, const float *from, unsigned n)
{
    AT;
    to[i] = fmaf(from[3 * i], from[3 * i + 1], from[3 * i + 2]);
}

extern "C" __global__ void fma_f64(double *to, const double *from, unsigned n)
{
    AT;
    to[i] = fma(from[3 * i], from[3 * i + 1], from[3 * i + 2]);
}

/* Results are defined to the last bit, so every f32 operation must round to f32. Where a
 * compiler computes in a wider type (FLT_EVAL_METHOD 1 or 2) the same source gives other bits,
 * silently: it does not compile. -fexcess-precision=standard is no remedy: it rounds at
 * assignments only. All sources with arithmetic include this file. (16 is about _Float16 only.) */
#ifndef GSI_BASE_ROUNDING_H
#define GSI_BASE_ROUNDING_H

#include <float.h>

#if FLT_EVAL_METHOD != 0 && FLT_EVAL_METHOD != 16
#if defined(__i386__) || defined(__x86_64__)
#error "gradscale: x87 arithmetic rounds twice (FLT_EVAL_METHOD is not 0): add -msse2 -mfpmath=sse"
#elif defined(__s390__)
#error "gradscale: f32 is computed as f64 (FLT_EVAL_METHOD is not 0): add -fexcess-precision=fast"
#else
#error "gradscale: f32 must round to f32 in every operation, but FLT_EVAL_METHOD is not 0"
#endif
#endif

#endif

#include "kernel/gemm.h"
const gsi_gemm_isa *gsi_gemm_avx2(void) { return NULL; }

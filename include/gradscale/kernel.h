/* kernel.h: what it held before is in four headers. It will go; include those. */
#ifndef GRADSCALE_KERNEL_H
#define GRADSCALE_KERNEL_H

#include "gradscale/context.h"
#include "gradscale/exponents.h"
#include "gradscale/gemm.h"
#include "gradscale/tensor.h"

#endif

/* gradscale.h: all of libgradscale. Each header begins with the use it is for. */
#ifndef GRADSCALE_GRADSCALE_H
#define GRADSCALE_GRADSCALE_H

#include "gradscale/base.h"
#include "gradscale/comm.h"
#include "gradscale/context.h"
#include "gradscale/engine.h"
#include "gradscale/exponents.h"
#include "gradscale/gemm.h"
#include "gradscale/num.h"
#include "gradscale/optim.h"
#include "gradscale/scaler.h"
#include "gradscale/tensor.h"

#endif

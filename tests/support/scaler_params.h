/* scaler_params.h: machines drawn at random, corners included. */
#ifndef SCALER_PARAMS_H
#define SCALER_PARAMS_H

#include "gradscale/scaler.h"

#include <math.h>

static uint64_t random_at; /* of the one stream of this suite */
static inline uint32_t below(uint32_t n) { return gs_random_u32(7, random_at++) % n; }

static inline double pick(const double *values, size_t n) { return values[below((uint32_t)n)]; }
#define PICK(...) \
    pick((const double[]){__VA_ARGS__}, sizeof(double[]){__VA_ARGS__} / sizeof(double))
#define OFF ((double)NAN)

static inline gs_params random_params(void)
{
    gs_params p;
    gs_params_default(&p);
    p.init = PICK(65536, 1, 0x1p-20, 1000.3, 0x1.81cd6c8b43958p+13, 0x1p+120, 3e-45, 60000);
    p.state = (uint8_t)below(3);
    p.grow_op = (uint8_t)below(2);
    p.back_op = (uint8_t)below(4);
    p.growth = PICK(2, 2, 4, 1.1, 1.3, 0x1p+20, 1 + 0x1p-30);
    p.backoff = PICK(0.5, 0.5, 0.25, 0.7, 0.8, 0x1p-15);
    if (p.back_op >= GS_ARITH_DIV)
        p.backoff = PICK(2, 2, 4, 1.3, 3, 0x1p+15);
    if (below(20) == 0)
        p.growth = p.backoff = 1;
    p.compare = (uint8_t)below(4);
    p.interval = below(6) + (p.compare == GS_COMPARE_WRAP);
    if (below(25) == 0)
        p.interval = GS_NO_LIMIT;
    p.extra = below(3) ? 0 : below(4);
    p.credit = below(3) ? 0 : below(9);
    p.hyst = below(2) ? 1 : below(5);
    if (below(25) == 0)
        p.hyst = GS_NO_LIMIT;
    p.refill = (uint8_t)below(8);
    p.track_rescale = below(4) == 0;
    p.tolerance = PICK(0, 0, 0.05, 0.3, 0.5, 1);
    p.floor = PICK(OFF, OFF, 1, 0x1p-126, 3.3, 0.01);
    p.max = PICK(OFF, OFF, 0x1p+24, 65504, 0x1.fffffep+127, 10000.1);
    p.keep_nonfinite = (uint8_t)below(2);
    p.err = (uint8_t)below(4);
    p.err_min = p.err ? PICK(1, 0x1p-5, 1e-4, 3.3, 0) : OFF;
    p.bad_limit = below(3) ? GS_NO_LIMIT : below(5);
    p.lag = below(4) == 0;
    p.window_follows = PICK(OFF, OFF, 2, 1.5, 1, 4);
    p.warm_growth = PICK(OFF, OFF, 4, 1.7);
    return p;
}

#endif

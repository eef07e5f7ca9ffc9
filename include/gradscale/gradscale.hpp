// gradscale.hpp: libgradscale in C++17. Header only; link libgradscale.
//
//     gs::context ctx;
//     gs::scaler scaler("pytorch", "interval=200");
//     for each batch
//         gs::step step(scaler);
//         ... forward; backward of loss * step.scale into w_grad, b_grad ...
//         step.unscale(ctx, {gs::tensor(w_grad, "w"), gs::tensor(b_grad, "b")});
//         if (step.end(scaler).action == GS_APPLY)
//             ... optimizer ...
//
// Objects free what they own and move; plain data (scaler, step, window) is the C struct with
// functions, and copies. Everything goes into the C functions: get() and & give what they take. The
// comments there say what a call does; here is only how it is called.
//
// Errors: each call that can fail has a last argument, gs_error *. Without it a gs::error is
// thrown. With it nothing is thrown: error->status is GS_OK or what failed, the result is empty,
// and an object that could not be made is false:
//
//     gs_error error;
//     gs::context ctx(gs::config(), &error);
//     if (!ctx)
//         return std::puts(error.text);
//
// Compiled with -fno-exceptions the argument has to be given.
//
// Names given to tensors are not copied. A context outlives what is made from it.
#ifndef GRADSCALE_GRADSCALE_HPP
#define GRADSCALE_GRADSCALE_HPP

#include "gradscale/gradscale.h"
#include "gradscale/optim.hpp"

#endif

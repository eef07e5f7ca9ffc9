// From C++, with somebody else's tensors: nothing of theirs is copied or wrapped. The optimizer is
// told names, shapes and pointers once, and works in their memory. Whatever fails throws. The
// places that concern it are marked (1) to (4), as in 02_own_loop.c.
//
//     c++ -std=c++17 03_cpp.cpp $(pkg-config --cflags --libs gradscale) && ./a.out
#include <gradscale/gradscale.hpp>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <map>
#include <string>
#include <vector>

// ---- theirs: a tensor library that knows nothing of us ----

namespace theirs
{
struct Tensor {
    std::size_t rows = 0, cols = 0;
    std::vector<std::uint16_t> values, grads; // bf16, both
    Tensor() = default;
    Tensor(std::size_t r, std::size_t c) : rows(r), cols(c), values(r * c), grads(r * c) {}
};
using Module = std::map<std::string, Tensor>; // by parameter name
} // namespace theirs

// ---- ours ----

// (1) once: the tensors as they are. bf16 weights without an f32 master: rounding=kahan keeps what
// bf16 cuts off.
static std::vector<gs_weight> weights(theirs::Module &module)
{
    std::vector<gs_weight> list;
    for (auto &[name, tensor] : module) {
        gs_weight w = {};
        w.name = name.c_str();
        w.rows = tensor.rows;
        w.cols = tensor.cols;
        w.data = tensor.values.data();
        w.grad = tensor.grads.data();
        w.dtype = w.grad_dtype = GS_BF16;
        w.flags = tensor.rows == 1 ? GS_NO_DECAY : 0;
        list.push_back(w);
    }
    return list;
}

// y = w x + b fitted to y = 2 x0 - 3 x1 + 0.5; mean square error. (2): the gradient is multiplied
// by the scale where it is born.
static double forward_backward(theirs::Module &module, double scale)
{
    auto &w = module.at("weight"), &b = module.at("bias");
    float dw[2] = {0, 0}, db = 0;
    double loss = 0;
    for (unsigned n = 0; n < 64; n++) {
        const float x[2] = {std::sin(0.7f * float(n)), std::cos(1.3f * float(n))};
        const float y = 2 * x[0] - 3 * x[1] + 0.5f;
        const float error = gs_bf16_to_f32(w.values[0]) * x[0] +
                            gs_bf16_to_f32(w.values[1]) * x[1] + gs_bf16_to_f32(b.values[0]) - y;
        loss += double(error) * double(error) / 64;
        const float d = 2 * error / 64 * float(scale);
        dw[0] += d * x[0];
        dw[1] += d * x[1];
        db += d;
    }
    w.grads = {gs_f32_to_bf16(dw[0]), gs_f32_to_bf16(dw[1])};
    b.grads = {gs_f32_to_bf16(db)};
    return loss;
}

int main()
{
    try {
        theirs::Module module;
        module["weight"] = theirs::Tensor(2, 1);
        module["bias"] = theirs::Tensor(1, 1);
        const gs::context ctx;
        gs::optim optim(ctx, weights(module),
                        gs::optim_config("sgd", "lr=0.05 momentum=0.9 rounding=kahan"));
        gs::scaler scaler("guard"); // bf16 needs checks only

        double loss = 0;
        for (int t = 0; t < 300; t++) {
            gs::step step(scaler); // (3) which scale
            loss = forward_backward(module, step.scale);
            optim.step(step, scaler); // (4) judge, apply
        }
        const auto &w = module.at("weight"), &b = module.at("bias");
        std::printf("y = %.3f x0 %+.3f x1 %+.3f, loss %.2g\n", double(gs_bf16_to_f32(w.values[0])),
                    double(gs_bf16_to_f32(w.values[1])), double(gs_bf16_to_f32(b.values[0])), loss);
        return loss < 1e-4 ? 0 : 1;
    } catch (const gs::error &e) {
        std::fprintf(stderr, "%s\n", e.what());
        return 1;
    }
}

// From C++, with somebody else's tensors: nothing of theirs is copied or wrapped. The optimizer is
// told names, shapes and pointers once, and works in their memory. The places that concern it are
// marked (1) to (4), as in 02_own_loop.c.
//
//     c++ -std=c++17 03_cpp.cpp $(pkg-config --cflags --libs gradscale) && ./a.out
#include <gradscale/optim.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <map>
#include <memory>
#include <stdexcept>
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

struct Free {
    void operator()(gs_context *p) const { gs_context_free(p); }
    void operator()(gs_optim *p) const { gs_optim_free(p); }
};
using Context = std::unique_ptr<gs_context, Free>;
using Optim = std::unique_ptr<gs_optim, Free>;

static void check(gs_status status, const char *sentence)
{
    if (status != GS_OK)
        throw std::runtime_error(sentence);
}

static Context make_context()
{
    gs_context *ctx = nullptr;
    check(gs_context_create(&ctx, nullptr), "no context");
    return Context(ctx);
}

// (1) once: the tensors as they are. bf16 weights without an f32 master: rounding=kahan keeps what
// bf16 cuts off.
static Optim make_optim(gs_context *ctx, theirs::Module &module, const char *kind,
                        const char *settings)
{
    gs_error error = {};
    gs_optim_config config;
    check(gs_optim_config_init(&config, kind, &error), error.text);
    check(gs_optim_config_set(&config, settings, &error), error.text);
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
    gs_optim *optim = nullptr;
    if (gs_optim_create(&optim, ctx, list.data(), list.size(), &config) != GS_OK)
        throw std::runtime_error(gs_context_error(ctx)->text);
    return Optim(optim);
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
        const Context ctx = make_context();
        const Optim optim =
            make_optim(ctx.get(), module, "sgd", "lr=0.05 momentum=0.9 rounding=kahan");
        gs_scaler scaler;
        check(gs_scaler_init(&scaler, "guard", nullptr), "no scaler"); // bf16 needs checks only

        double loss = 0;
        for (int t = 0; t < 300; t++) {
            gs_step step;
            gs_step_begin(&step, &scaler); // (3) which scale
            loss = forward_backward(module, step.scale);
            if (gs_optim_step(optim.get(), &step, &scaler, nullptr) != GS_OK) // (4) judge, apply
                throw std::runtime_error(gs_context_error(ctx.get())->text);
        }
        const auto &w = module.at("weight"), &b = module.at("bias");
        std::printf("y = %.3f x0 %+.3f x1 %+.3f, loss %.2g\n", double(gs_bf16_to_f32(w.values[0])),
                    double(gs_bf16_to_f32(w.values[1])), double(gs_bf16_to_f32(b.values[0])), loss);
        return loss < 1e-4 ? 0 : 1;
    } catch (const std::exception &e) {
        std::fprintf(stderr, "%s\n", e.what());
        return 1;
    }
}

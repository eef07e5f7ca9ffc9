// libtorch in C++: gs::GradScaler around a training loop, as torch.amp.GradScaler in Python. A
// small network learns which of two spirals a point is on; its hidden layer keeps bf16 gradients.
// (1) to (5) are all that loss scaling adds.
//
//     T=$(python3 -c 'import torch; print(torch.__path__[0])')
//     c++ -std=c++20 07_libtorch.cpp -I$T/include -I$T/include/torch/csrc/api/include
//         $(pkg-config --cflags --libs gradscale)
//         -L$T/lib -Wl,-rpath,$T/lib -ltorch_cpu -ltorch -lc10
#include <gradscale/torch.hpp> // (1)

#include <cstdio>
#include <torch/torch.h>

struct NetImpl : torch::nn::Module {
    torch::nn::Linear in{nullptr}, hidden{nullptr}, out{nullptr};
    NetImpl()
    {
        in = register_module("in", torch::nn::Linear(2, 32));
        hidden = register_module("hidden", torch::nn::Linear(32, 32));
        out = register_module("out", torch::nn::Linear(32, 1));
        hidden->to(torch::kBFloat16);
    }
    torch::Tensor forward(const torch::Tensor &x)
    {
        const auto h = torch::tanh(in(x)).to(torch::kBFloat16);
        return out(torch::tanh(hidden(h)).to(torch::kFloat32)).squeeze(1);
    }
};
TORCH_MODULE(Net);

// Two arms, half a turn apart.
static void spirals(torch::Tensor &x, torch::Tensor &y, std::int64_t n)
{
    const auto t = torch::rand({n}) * 6 + 0.5;
    y = torch::randint(2, {n}).to(torch::kFloat32);
    const auto angle = t + y * 3.14159265f;
    x = torch::stack({t * torch::cos(angle), t * torch::sin(angle)}, 1) / 6;
}

int main()
{
    torch::manual_seed(1);
    Net net;
    torch::optim::AdamW optimizer(net->parameters(), torch::optim::AdamWOptions(1e-2));
    gs::GradScaler scaler("pytorch",
                          "init=0x1p+24 interval=200"); // (2) or "headroom", "megatron", ...

    int skipped = 0;
    double last = 0;
    for (int t = 0; t < 600; t++) {
        torch::Tensor x, y;
        spirals(x, y, 256);
        optimizer.zero_grad();
        const auto loss = torch::binary_cross_entropy_with_logits(net(x), y);
        scaler.scale(loss).backward(); // (3)
        if (t == 300)                  // a corrupt batch
            net->out->weight.mutable_grad()[0][7] = INFINITY;
        scaler.unscale_(optimizer);
        torch::nn::utils::clip_grad_norm_(net->parameters(), 1.0); // in true units
        const gs_verdict verdict = scaler.step(optimizer);         // (4)
        scaler.update();                                           // (5)
        if (verdict.action != GS_APPLY) {
            skipped++;
            std::printf("step %d: %s (%s), the scale is %g now\n", t,
                        gs_action_name(verdict.action), gs_reason_name(verdict.reason),
                        scaler.get_scale());
        }
        last = loss.item<double>();
    }
    torch::Tensor x, y;
    spirals(x, y, 4096);
    const double right =
        ((net(x) > 0).to(torch::kFloat32) == y).to(torch::kFloat32).mean().item<double>();
    std::printf("loss %.4f, %.1f%% right, %d of 600 steps skipped, scale %g\n", last, 100 * right,
                skipped, scaler.get_scale());
    return right > 0.95 && skipped == 1 ? 0 : 1;
}

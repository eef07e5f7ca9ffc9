// The scales, gradients and weights of gs::GradScaler under injected Inf and NaN, as text.
// parity.py prints what torch.amp.GradScaler makes of the same. Change both or none.
#include "gradscale/torch.hpp"

#include <cstdio>
#include <torch/torch.h>

static std::uint64_t state;

static std::uint64_t draw(std::uint64_t below)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (state >> 33) % below;
}

static torch::Tensor values(std::int64_t count)
{
    std::vector<float> x;
    for (std::int64_t i = 0; i < count; i++)
        x.push_back(float(int(draw(2001)) - 1000) / 512);
    return torch::tensor(x);
}

static void print_bits(const torch::Tensor &x)
{
    if (!x.defined()) {
        std::printf(" none");
        return;
    }
    const auto dense = x.detach().contiguous();
    const auto *bytes = static_cast<const unsigned char *>(dense.data_ptr());
    std::printf(" ");
    for (std::size_t i = 0; i < dense.nbytes(); i++)
        std::printf("%02x", bytes[i]);
}

int main(int argc, char **argv)
{
    const double inits[] = {65536, 1024, 3.7, 0x1p24, 0x1p120}, growths[] = {2, 1.5};
    const double backoffs[] = {0.5, 0.7};
    const int intervals[] = {1, 2, 5};
    const torch::ScalarType types[] = {torch::kFloat32, torch::kBFloat16, torch::kFloat64,
                                       torch::kFloat16};
    const int cases = argc > 1 ? std::atoi(argv[1]) : 100;
    for (int c = 0; c < cases; c++) {
        state = std::uint64_t(c) + 1;
        const double init = inits[draw(5)], growth = growths[draw(2)], backoff = backoffs[draw(2)];
        const int interval = intervals[draw(3)];
        const auto type = types[draw(4)];
        const bool two = draw(2) == 0, clip = draw(2) == 0;
        char settings[160];
        std::snprintf(settings, sizeof settings, "init=%a growth=%a backoff=%a interval=%d%s", init,
                      growth, backoff, interval,
                      interval == 5 && init < 0x1p30 ? "" : " lowest=off highest=off");
        gs::GradScaler scaler("pytorch", settings);
        auto w0 = values(15).reshape({3, 5}).requires_grad_();
        auto w1 = values(7).to(type).requires_grad_();
        auto w2 = values(4).requires_grad_();
        using Params = std::vector<torch::Tensor>;
        std::vector<std::unique_ptr<torch::optim::SGD>> optimizers;
        const torch::optim::SGDOptions options(0.125);
        if (two) {
            optimizers.push_back(std::make_unique<torch::optim::SGD>(Params{w0, w2}, options));
            optimizers.push_back(std::make_unique<torch::optim::SGD>(Params{w1}, options));
        } else
            optimizers.push_back(std::make_unique<torch::optim::SGD>(Params{w0, w1, w2}, options));

        for (int t = 0; t < 40; t++) {
            for (auto &o : optimizers)
                o->zero_grad();
            for (std::uint64_t n = 1 + draw(2); n > 0; n--) {
                auto loss = (w0 * values(15).reshape({3, 5})).sum() * 0.01;
                loss = loss + (w1.to(torch::kFloat32) * values(7)).sum();
                if (draw(2) == 0)
                    loss = loss + (w2 * values(4)).sum();
                scaler.scale(loss).backward();
            }
            const std::uint64_t what = draw(10), where = draw(7);
            torch::NoGradGuard no_grad;
            if (what == 0)
                w0.mutable_grad().view(-1)[std::int64_t(where)] = INFINITY;
            if (what == 1)
                w1.mutable_grad()[std::int64_t(where)] = NAN;
            if (what == 2)
                w1.mutable_grad()[std::int64_t(where)] = -INFINITY;
            if (clip)
                for (auto &o : optimizers)
                    scaler.unscale_(*o);
            for (auto &o : optimizers)
                scaler.step(*o);
            scaler.update();
            std::printf("%d %d %a %lld", c, t, scaler.get_scale(),
                        static_cast<long long>(scaler.state_dict().growth_tracker));
            for (const auto &w : {w0, w1, w2}) {
                print_bits(w.grad());
                print_bits(w);
            }
            std::printf("\n");
        }
    }
    return 0;
}

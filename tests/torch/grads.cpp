// gs::GradScaler over every layout of gradients, and what it refuses.
#include "gradscale/torch.hpp"

#include <cmath>
#include <cstdio>
#include <cstring>
#include <sstream>
#include <torch/torch.h>

static int failed;
#define EXPECT(what) \
    ((what) ? (void)0 : (void)(failed++, std::printf("%s:%d: %s\n", __FILE__, __LINE__, #what)))

// What `call` throws, or GS_OK; its message must have `part`.
template <class F> static gs_status thrown(F call, const char *part)
{
    try {
        call();
    } catch (const gs::error &e) {
        if (!std::strstr(e.what(), part))
            std::printf("%s: not in: %s\n", part, e.what()), failed++;
        return e.status;
    }
    return GS_OK;
}

static torch::Tensor weight(at::IntArrayRef size, torch::ScalarType type)
{
    return torch::zeros(size, type).requires_grad_();
}

static gs::GradScaler scaler_at(double scale, const char *spec = "pytorch")
{
    gs::GradScaler scaler(spec);
    scaler.update(scale);
    return scaler;
}

// A gradient that is a view of a larger buffer; beyond the view the buffer must not change.
static void test_layouts()
{
    using Slice = torch::indexing::Slice;
    const torch::ScalarType types[] = {torch::kFloat, torch::kHalf, torch::kBFloat16,
                                       torch::kDouble};
    for (const auto type : types)
        for (int how = 0; how < 8; how++)
            for (const char *policy : {"pytorch", "histogram"}) {
                auto buffer = (torch::arange(4 * 6 * 10) + 8).to(type).reshape({4, 6, 10});
                const auto before = buffer.clone();
                const auto view_of = [how](const torch::Tensor &b) {
                    switch (how) {
                    case 0:
                        return b;
                    case 1:
                        return b[1].t(); // dense, columns first
                    case 2:
                        return b[2].index({Slice(), Slice(2, 7)}); // rows of a larger matrix
                    case 3:
                        return b[2].index({Slice(), Slice(2, 7)}).t();
                    case 4:
                        return b.view(-1).index({Slice(3, 100, 4)});
                    case 5:
                        return b.index({Slice(), Slice(1, 3), Slice(2, 9)}); // by a copy
                    case 6:
                        return b.permute({2, 0, 1});
                    default:
                        return b.index({Slice(0, 0)}); // no element
                    }
                };
                auto grad = view_of(buffer);
                auto w = weight(grad.sizes(), type);
                w.mutable_grad() = grad;
                torch::optim::SGD optimizer({w}, torch::optim::SGDOptions(1));
                auto scaler = scaler_at(8, policy);
                const auto verdict = scaler.step(optimizer);
                EXPECT(verdict.action == GS_APPLY && verdict.reason == GS_REASON_FINE);
                auto expect = before.clone();
                view_of(expect).mul_(0.125);
                EXPECT(torch::equal(buffer, expect)); // and in place
                EXPECT(w.grad().data_ptr() == grad.data_ptr());
                EXPECT(torch::equal(w, -view_of(expect)));
                scaler.update();
                EXPECT(scaler.get().counters.applied == 1);
            }
}

static void test_none_and_empty()
{
    auto a = weight({3}, torch::kFloat), b = weight({3}, torch::kFloat);
    torch::optim::SGD first({a, b}, torch::optim::SGDOptions(1));
    torch::optim::SGD second({b}, torch::optim::SGDOptions(1));
    auto scaler = scaler_at(4);
    a.mutable_grad() = torch::ones({3});
    EXPECT(scaler.step(first).action == GS_APPLY); // b has none
    const auto verdict = scaler.step(second);
    EXPECT(verdict.action == GS_SKIP && verdict.reason == GS_REASON_NO_GRADS);
    EXPECT(scaler.update() == 4);
    EXPECT(scaler.state_dict().growth_tracker == 1);
}

static void test_sparse()
{
    for (const auto type : {torch::kFloat, torch::kHalf}) {
        auto w = weight({5, 2}, type);
        const auto index = torch::tensor({1, 3, 1}).reshape({1, 3});
        w.mutable_grad() =
            torch::sparse_coo_tensor(index, torch::full({3, 2}, 40000, type), {5, 2});
        torch::optim::SGD optimizer({w}, torch::optim::SGDOptions(1));
        auto scaler = scaler_at(16);
        const auto verdict = scaler.step(optimizer);
        if (type == torch::kHalf) { // 80000 is beyond f16: the sum is what counts
            EXPECT(verdict.action == GS_SKIP && verdict.reason == GS_REASON_INF);
            EXPECT(w.grad().is_coalesced());
        } else {
            EXPECT(verdict.action == GS_APPLY && w[1][0].item<float>() == -5000);
            EXPECT(w[3][1].item<float>() == -2500 && w[0][0].item<float>() == 0);
        }
        EXPECT(scaler.update() == (type == torch::kHalf ? 8 : 16));
    }
}

static void test_refused()
{
    auto a = weight({4}, torch::kFloat), b = weight({4}, torch::kFloat);
    torch::optim::SGD optimizer({a, b}, torch::optim::SGDOptions(1));
    auto scaler = scaler_at(4);
    a.mutable_grad() = torch::ones({4});
    b.mutable_grad() = torch::ones({1}).expand({4});
    EXPECT(thrown([&] { scaler.step(optimizer); }, "gradient 1 of group 0") == GS_ESTATE);
    EXPECT(a.grad()[0].item<float>() == 1); // nothing was touched
    EXPECT(thrown([&] { scaler.update(); }, "no optimizer") == GS_ESTATE);
    b.mutable_grad() = torch::ones({4});
    EXPECT(scaler.step(optimizer).action == GS_APPLY); // and it goes on
    EXPECT(thrown([&] { scaler.step(optimizer); }, "since the last update") == GS_ESTATE);
    EXPECT(thrown([&] { scaler.unscale_(optimizer); }, "after step") == GS_ESTATE);
    scaler.update();
    EXPECT(thrown([&] { scaler.update(); }, "no optimizer") == GS_ESTATE);
    scaler.unscale_(optimizer);
    EXPECT(thrown([&] { scaler.unscale_(optimizer); }, "since the last update") == GS_ESTATE);
    scaler.update();

    auto c = torch::zeros({2}, torch::kComplexFloat).requires_grad_();
    c.mutable_grad() = torch::ones({2}, torch::kComplexFloat);
    torch::optim::SGD complex({c}, torch::optim::SGDOptions(1));
    EXPECT(thrown([&] { scaler.step(complex); }, "ComplexFloat") == GS_EDTYPE);

    // A device, as far as it is there: meta has shapes and no memory.
    auto d = torch::zeros({2}, torch::device(torch::kMeta)).requires_grad_();
    d.mutable_grad() = torch::ones({2}, torch::device(torch::kMeta));
    torch::optim::SGD device({d}, torch::optim::SGDOptions(1));
    EXPECT(thrown([&] { scaler.step(device); }, "unscaled_(optimizer, found_inf)") == GS_ESTATE);
    scaler.unscaled_(device, true);
    EXPECT(scaler.step(device).action == GS_SKIP);
    EXPECT(scaler.update() == 2);

    torch::optim::LBFGS lbfgs({a});
    EXPECT(thrown([&] { scaler.step(lbfgs); }, "LBFGS") == GS_ESTATE);
    EXPECT(thrown([] { gs::GradScaler x("pytoch"); }, "pytoch") == GS_ENAME);
    EXPECT(thrown([] { gs::GradScaler x("pytorch", "growth=0"); }, "growth") == GS_ERANGE);
}

static void test_every_spec()
{
    std::vector<std::string> specs = {"static:128", "guard",     "headroom", "logmax",
                                      "adaptive",   "histogram", "none"};
    for (std::size_t i = 0; gs_preset_name(i); i++)
        specs.push_back(gs_preset_name(i));
    for (const auto &spec : specs) {
        auto w = weight({64}, torch::kFloat);
        torch::optim::AdamW optimizer({w}, torch::optim::AdamWOptions(0.01));
        gs::GradScaler scaler(spec.c_str());
        const auto target = torch::linspace(-1, 1, 64);
        for (int t = 0; t < 40; t++) {
            optimizer.zero_grad();
            scaler.scale((w - target).square().mean()).backward();
            EXPECT(scaler.step(optimizer).action == GS_APPLY);
            scaler.update();
        }
        EXPECT((w - target).square().mean().item<float>() < 0.3f);
    }
    EXPECT(specs.size() > 40);
}

static void test_retry()
{
    auto w = weight({1}, torch::kFloat);
    torch::optim::SGD optimizer({w}, torch::optim::SGDOptions(1)), other({w}, 1.0);
    gs::GradScaler scaler("pytorch", "on_overflow=retry:3");
    int runs = 0;
    gs_verdict verdict;
    do {
        optimizer.zero_grad();
        scaler.scale((w * 1e34f).sum()).backward(); // Inf at 65536 and 32768 and ...
        verdict = scaler.step(optimizer);
        if (verdict.action == GS_RETRY)
            EXPECT(thrown([&] { scaler.step(other); }, "on_overflow=skip") == GS_ESTATE);
        scaler.update();
    } while (++runs < 10 && verdict.action == GS_RETRY);
    EXPECT(runs == 2 && verdict.action == GS_APPLY);
    EXPECT(w.item<float>() == -1e34f && scaler.get_scale() == 32768);
}

static void test_state()
{
    auto w = weight({2}, torch::kFloat);
    torch::optim::SGD optimizer({w}, torch::optim::SGDOptions(1));
    gs::GradScaler a("pytorch", "interval=5"), b, c;
    for (int t = 0; t < 8; t++) {
        w.mutable_grad() = torch::full({2}, t == 1 ? INFINITY : 1);
        a.step(optimizer);
        a.update();
    }
    std::stringstream file;
    torch::serialize::OutputArchive out;
    a.save(out);
    out.save_to(file);
    torch::serialize::InputArchive in;
    in.load_from(file);
    b.load(in);
    EXPECT(b.state() == a.state() && b.get_scale() == 65536);
    EXPECT(a.state_dict().growth_tracker == 1 && a.state_dict().growth_interval == 5);
    c.load_state_dict({128, 4, 0.25, 2, 1});
    w.mutable_grad() = torch::ones({2});
    c.step(optimizer);
    EXPECT(c.update() == 512 && c.state_dict().growth_tracker == 0);
    EXPECT(thrown([&] { c.load_state("no state"); }, "") != GS_OK && c.get_scale() == 512);
    EXPECT(thrown([&] { c.load_state_dict({128, 0, 0.5, 2, 0}); }, "growth") == GS_ERANGE);
    EXPECT(c.state_dict().growth_factor == 4);
}

static void test_scale()
{
    gs::GradScaler scaler("static:8");
    EXPECT(scaler.scale(torch::tensor(2.0f)).item<float>() == 16);
    EXPECT(scaler.scale(torch::tensor(2.0f).to(torch::kHalf)).scalar_type() == torch::kFloat);
    EXPECT(scaler.scale(torch::tensor(2.0, torch::kDouble)).scalar_type() == torch::kDouble);
    EXPECT(scaler.scale(std::vector<torch::Tensor>{torch::tensor(1.0f), torch::tensor(3.0f)})[1]
               .item<float>() == 24);
    gs::GradScaler off("none");
    const auto loss = torch::tensor(2.0f);
    EXPECT(off.scale(loss).is_same(loss) && !off.is_enabled() && scaler.is_enabled());
}

int main()
{
    test_layouts();
    test_none_and_empty();
    test_sparse();
    test_refused();
    test_every_spec();
    test_retry();
    test_state();
    test_scale();
    std::printf("%d failed\n", failed);
    return failed != 0;
}

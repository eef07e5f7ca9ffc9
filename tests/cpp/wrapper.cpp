// gradscale.hpp: it gives what the C functions give; what fails throws, or fills in a gs_error.
#include "gradscale/gradscale.hpp"

#include <array>
#include <cmath>
#include <cstring>
#if __cplusplus >= 202002L
#include <span>
#endif

static int failed;
#define EXPECT(what) \
    ((what) ? (void)0 : (void)(failed++, std::printf("%s:%d: %s\n", __FILE__, __LINE__, #what)))

// Views of what has const or other elements are refused when compiled; owners move and do not copy.
template <class T, class C> constexpr bool views = std::is_convertible_v<C, gs::view<T>>;
static_assert(views<float, std::vector<float> &> && views<const float, const std::vector<float> &>);
static_assert(views<const float, std::vector<float> &> && views<float, std::array<float, 3> &>);
static_assert(views<float, float (&)[3]> && views<const gs_tensor, gs_tensor (&)[2]>);
static_assert(!views<float, const std::vector<float> &> && !views<float, std::vector<double> &>);
static_assert(!views<gs_step, std::vector<gs::step> &>); // derived: another stride
static_assert(!std::is_copy_constructible_v<gs::context> && !std::is_copy_assignable_v<gs::optim>);
static_assert(std::is_nothrow_move_constructible_v<gs::context>);
static_assert(std::is_nothrow_move_assignable_v<gs::store>);
static_assert(std::is_trivially_copyable_v<gs::scaler> && sizeof(gs::scaler) == sizeof(gs_scaler));
static_assert(std::is_trivially_copyable_v<gs::step> && sizeof(gs::step) == sizeof(gs_step));
#if __cplusplus >= 202002L
static_assert(views<float, std::span<float>> && views<const float, std::span<const float, 4>>);
#endif

// What `call` throws, or GS_OK.
template <class F> static gs_status thrown(F call, const char *part)
{
    try {
        call();
    } catch (const gs::error &e) {
        EXPECT(std::strstr(e.what(), part));
        return e.status;
    }
    return GS_OK;
}

static void test_passes(const gs::context &ctx)
{
    std::vector<float> w(1000, 2);
    std::array<gs::f16, 3> h = {gs::f16(1), gs::f16(-3), gs::f16(0.5f)};
    double d[2] = {8, 16};
    auto stats = ctx.scan({gs::tensor(w, "w"), gs::tensor(h), gs::tensor(d)});
    EXPECT(stats.elements == 1005 && stats.amax == 16 && gs::finite(stats));
    EXPECT(stats.sumsq == 4000 + 1 + 9 + 0.25 + 64 + 256);
    ctx.scale({gs::tensor(w), gs::tensor(h), gs::tensor(d)}, 0.5f);
    EXPECT(w[999] == 1 && float(h[1]) == -1.5f && d[1] == 8);

    const std::vector<float> source = {1, 2, 1e-9f};
    std::vector<gs::bf16> to(3);
    ctx.convert({gs::tensor(to)}, {gs::tensor(source)});
    EXPECT(float(to[1]) == 2);
    const auto each = ctx.count({gs::tensor(source)}, GS_F16);
    EXPECT(each.size() == 1 && each[0].underflow == 1);
    std::vector<float> sum = {1, 1, 1};
    ctx.axpy({gs::tensor(sum)}, {gs::tensor(source)}, 2);
    EXPECT(sum[1] == 5);
    ctx.round({gs::tensor(sum)}, GS_F16);
    gs_exponents x = {};
    ctx.exponents(x, {gs::tensor(sum)});
    EXPECT(x.all[GS_BINADE_OF_ONE + 2] == 1);
    const gs_strided rows = {2, 10};
    stats = ctx.check({gs::tensor(w.data(), 6, GS_F32, "rows", &rows)});
    EXPECT(stats.elements == 6);
    EXPECT(gs::finite(ctx.check(gs::tensors())));

    EXPECT(thrown([&] { ctx.convert({gs::tensor(to)}, {}); }, "differ in number") == GS_ESIZE);
    EXPECT(thrown([&] { ctx.scale({gs::tensor(w, "w")}, INFINITY); }, "") == GS_ERANGE);
    gs_tensor bad = gs::tensor(w, "weight");
    bad.data = nullptr;
    EXPECT(thrown([&] { ctx.scan({bad}); }, "weight") == GS_ENULL);
    gs_error error = {};
    ctx.scan({bad}, &error);
    EXPECT(error.status == GS_ENULL && std::strstr(error.text, "weight"));
    ctx.scan({gs::tensor(w)}, &error);
    EXPECT(error.status == GS_OK);
}

static void test_scaler(const gs::context &ctx)
{
    gs::scaler scaler("pytorch", "interval=2 init=1024");
    std::vector<float> grad = {1024, 2048};
    for (int t = 0; t < 3; t++) {
        gs::step step(scaler);
        grad[0] = t == 2 ? INFINITY : float(step.scale);
        step.loss(1);
        step.unscale(ctx, {gs::tensor(grad, "grad")});
        EXPECT(t == 2 || grad[0] == 1);
        const auto verdict = step.end(scaler);
        EXPECT(verdict.action == (t == 2 ? GS_SKIP : GS_APPLY));
    }
    EXPECT(scaler.scale() == 1024 && scaler.counters.applied == 2);
    EXPECT(scaler.get("interval") == "2" && scaler.health() == GS_HEALTHY);
    EXPECT(!scaler.explain({gs::tensor(grad, "grad")}).empty());

    gs::scaler other("megatron");
    other.load(scaler.save());
    EXPECT(std::memcmp(&other, &scaler, sizeof scaler) == 0);
    other.resume(64, 1);
    EXPECT(other.scale() == 64);
    other.set_scale(32);
    std::vector<gs_step> steps(2, gs::step(other));
    gs_step_flag(&steps[0], 0);
    gs_step_flag(&steps[1], 1);
    gs::end_steps(steps, other);
    EXPECT(other.scale() == 16);
    gs::window window(other, GS_DROP_MICROBATCH);
    gs::step micro(other);
    micro.amax(1);
    EXPECT(window.add(micro));
    EXPECT(window.end(other).action == GS_APPLY);

    EXPECT(thrown([] { gs::scaler x("pytoch"); }, "pytoch") == GS_ENAME);
    EXPECT(thrown([] { gs::scaler x("pytorch", "grow=2"); }, "grow") == GS_ENAME);
    EXPECT(thrown([&] { scaler.set("growth=0"); }, "growth") == GS_ERANGE);
    EXPECT(thrown([&] { scaler.load("x"); }, "") != GS_OK && scaler.scale() == 1024);
    EXPECT(thrown([&] { scaler.get("no"); }, "no") == GS_ENAME);
    gs_error error = {};
    gs::scaler none("pytorch", "grow=2", &error);
    EXPECT(!none && error.status == GS_ENAME && scaler);
    gs::step of_none(none);
    EXPECT(of_none.end(none).reason == GS_REASON_VERSION);
}

static void test_optim(const gs::context &ctx)
{
    gs::store store(ctx, {{"w", 2, 3, 0}, {"b", 1, 3, GS_NO_DECAY}}, {GS_F32, GS_F16, GS_F16});
    EXPECT(store.weights().size() == 2 && store.find("b")->cols == 3 && !store.find("c"));
    gs::optim optim(ctx, store.weights(), gs::optim_config("adamw", "lr=0.5 clip_norm=1"));
    gs::scaler scaler("static:128");
    auto *grads = static_cast<std::uint16_t *>(store.grads().data);
    grads[0] = gs::f16(128).bits;
    gs::step step(scaler);
    const auto report = optim.step(step, scaler);
    EXPECT(report.verdict.action == GS_APPLY && report.norm == 1 && optim.steps() == 1);
    const auto m = optim.read_slot(0, GS_SLOT_M);
    EXPECT(m.size() == 6 && m[0] > 0 && m[1] == 0);
    optim.write_slot(0, GS_SLOT_M, m);
    optim.set_lr(0.25);
    EXPECT(optim.lr() == 0.25 && optim.config().kind == GS_ADAMW);
    EXPECT(thrown([&] { optim.set_lr(-1); }, "") == GS_ERANGE);
    EXPECT(thrown([&] { optim.write_slot(0, GS_SLOT_M, {1.0f}); }, "") == GS_ESIZE);

    std::vector<float> w = {1, 2}, g = {0, 0};
    gs::optim sgd(ctx, {gs::weight("w", 1, 2, w.data(), g.data())},
                  gs::optim_config("sgd", "lr=1"));
    gs::optim moved = std::move(sgd);
    EXPECT(!sgd && moved); // NOLINT: what is left is empty
    sgd = std::move(moved);
    EXPECT(sgd.steps() == 0);
    EXPECT(thrown([] { gs::optim_config("sdg", ""); }, "sdg") == GS_ENAME);
    gs_error error = {};
    const auto none = gs::optim_config("sgd", "lr=-1 x", &error);
    EXPECT(error.status != GS_OK);
    gs::optim no(ctx, store.weights(), none, &error);
    EXPECT(!no && error.status == GS_EVERSION);
}

int main()
{
    gs::context ctx(gs::config(2));
    EXPECT(ctx && ctx.threads() == 2);
    test_passes(ctx);
    test_scaler(ctx);
    test_optim(ctx);
    gs::context other;
    other = std::move(ctx);
    test_passes(other);
    gs_error error = {};
    EXPECT(thrown([&] { ctx.scan({}); }, "pointer is missing") == GS_ENULL); // NOLINT: moved from
    gs_config wrong = gs::config();
    wrong.size = 1;
    gs::context none(wrong, &error);
    EXPECT(!none && error.status == GS_EVERSION && error.text[0]);
    EXPECT(thrown([&] { gs::context x(wrong); }, "gs_config") == GS_EVERSION);
    std::printf("%d failed\n", failed);
    return failed != 0;
}

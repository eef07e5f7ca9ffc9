// torch.hpp: a GradScaler for libtorch, as torch.amp has one for Python. CPU tensors, in place.
//
//     gs::GradScaler scaler;                     or ("headroom"), ("megatron", "interval=500")
//     for each batch
//         optimizer.zero_grad();
//         scaler.scale(loss).backward();
//         scaler.unscale_(optimizer);                                           to clip; optional
//         torch::nn::utils::clip_grad_norm_(model->parameters(), 1.0);
//         gs_verdict v = scaler.step(optimizer);          v.action == GS_APPLY: it was stepped
//         scaler.update();
//
// With "pytorch", the default, scales and gradients are those of torch.amp.GradScaler, to the bit.
// What differs: step says what it did; the scale stays inside 2^-24..2^40 ("lowest=off highest=off"
// lets it go); gradients in f16 are taken too; gradients that only unscaling makes infinite are not
// applied; an optimizer without any gradient is skipped, GS_REASON_NO_GRADS, and is no error.
//
// Gradients: f32, f16, bf16, f64. Dense memory in any order of dimensions, and rows of a larger
// matrix, are worked on where they lie; other views through a contiguous copy. Undefined gradients
// are left out. Of a sparse gradient the values are taken, in f16 after coalesce(). All the rest,
// and tensors on a device, are refused with a gs::error before anything is touched.
//
// Several optimizers: step each, then update() once. One thread at a time.
#ifndef GRADSCALE_TORCH_HPP
#define GRADSCALE_TORCH_HPP

#include "gradscale/torch_grads.hpp"

#include <ATen/Parallel.h>
#include <algorithm>
#include <torch/serialize.h>

namespace gs
{
// What torch.amp.GradScaler.state_dict() has.
struct GradScalerState {
    double scale, growth_factor, backoff_factor;
    std::int64_t growth_interval, growth_tracker;
};

class GradScaler
{
    using Tensor = ::torch::Tensor;
    using Optimizer = ::torch::optim::Optimizer;

  public:
    // spec: a preset or policy of gs_scaler_init; settings: "key=value ..." of gs_scaler_set;
    // threads 0: as many as libtorch uses.
    explicit GradScaler(const char *spec = "pytorch", const char *settings = "",
                        unsigned threads = 0)
        : ctx_(gs::config(threads ? threads : unsigned(at::get_num_threads()))),
          scaler_(spec, settings)
    {
    }

    // loss * scale, on the loss's device, as Python's: in f32 at least.
    Tensor scale(const Tensor &loss) const
    {
        if (!is_enabled())
            return loss;
        return loss * at::full({}, get_scale(), at::device(loss.device()).dtype(at::kFloat));
    }
    std::vector<Tensor> scale(const std::vector<Tensor> &losses) const
    {
        std::vector<Tensor> scaled;
        for (const auto &loss : losses)
            scaled.push_back(scale(loss));
        return scaled;
    }

    // Gradients / scale, in place, and looks for Inf and NaN. Once per optimizer and update.
    void unscale_(Optimizer &optimizer)
    {
        Entry &e = entry(optimizer, "unscale_");
        if (!is_enabled()) {
            e.stage = UNSCALED;
            return;
        }
        at::NoGradGuard no_grad;
        detail::Gradients grads(optimizer);
        if (scaler_.policy == GS_POLICY_HISTOGRAM)
            look_at_exponents(e.step, grads.list());
        ctx_.done(gs_step_unscale(&e.step, ctx_.get(), nullptr, grads.list().data(),
                                  grads.list().size()));
        grads.copy_back();
        e.stage = UNSCALED;
    }

    // In place of unscale_, for gradients that the caller has multiplied by 1 / get_scale(), on a
    // device: was there an Inf or NaN before?
    void unscaled_(Optimizer &optimizer, bool found_inf)
    {
        Entry &e = entry(optimizer, "unscaled_");
        gs_step_flag(&e.step, found_inf);
        e.stage = UNSCALED;
    }

    // Unscales unless that was done, then steps the optimizer if the verdict is APPLY. After a
    // RETRY (on_overflow=retry:N) call update(), and run the same batch again.
    gs_verdict step(Optimizer &optimizer)
    {
        if (dynamic_cast<::torch::optim::LBFGS *>(&optimizer))
            detail::fail(GS_ESTATE, "LBFGS evaluates the loss within a step, at no scale: a "
                                    "GradScaler cannot step it");
        if (find(optimizer) == nullptr || find(optimizer)->stage == READY)
            unscale_(optimizer);
        Entry &e = *find(optimizer);
        if (e.stage == STEPPED)
            detail::fail(GS_ESTATE, "step has already been called since the last update");
        const gs_verdict verdict = gs_step_decide(&e.step, &scaler_);
        if (verdict.action == GS_APPLY)
            optimizer.step();
        e.stage = STEPPED;
        return verdict;
    }

    // The next scale, from what all optimizers found. Returns it.
    double update()
    {
        std::vector<gs_step> steps;
        for (const auto &e : entries_)
            if (e.stage != READY) // its gradients were refused
                steps.push_back(e.step);
        if (steps.empty())
            detail::fail(GS_ESTATE,
                         "update: no optimizer was unscaled or stepped since the last one");
        if (steps.size() == 1)
            gs_step_end(&steps[0], &scaler_);
        else
            end_steps(steps, scaler_);
        entries_.clear();
        return get_scale();
    }
    double update(double new_scale)
    {
        scaler_.set_scale(new_scale);
        entries_.clear();
        return get_scale();
    }

    double get_scale() const { return scaler_.scale(); }
    bool is_enabled() const { return scaler_.policy != GS_POLICY_NONE; }
    // Counters, rules, health, explain(), set("growth=1.5") and get("interval"): scaler.h.
    gs::scaler &get() { return scaler_; }
    const gs::scaler &get() const { return scaler_; }

    // All of it as text; loading goes on bit for bit. Between an update and the next scale.
    std::string state() const { return scaler_.save(); }
    void load_state(const std::string &text)
    {
        scaler_.load(text);
        entries_.clear();
    }
    void save(::torch::serialize::OutputArchive &archive) const
    {
        archive.write("gradscale", c10::IValue(state()));
    }
    void load(::torch::serialize::InputArchive &archive)
    {
        c10::IValue text;
        archive.read("gradscale", text);
        load_state(text.toStringRef());
    }

    // To and from a checkpoint of Python's GradScaler. Of presets whose scale moves as PyTorch's.
    GradScalerState state_dict() const
    {
        return {get_scale(), scaler_.params.growth, scaler_.params.backoff, scaler_.params.interval,
                std::int64_t(scaler_.machine.count)};
    }
    void load_state_dict(const GradScalerState &state)
    {
        char text[128];
        std::snprintf(text, sizeof text, "growth=%a backoff=%a interval=%lld", state.growth_factor,
                      state.backoff_factor, static_cast<long long>(state.growth_interval));
        gs::scaler next = scaler_;
        next.set(text);
        next.resume(state.scale, state.growth_tracker);
        scaler_ = next;
        entries_.clear();
    }

  private:
    enum Stage { READY, UNSCALED, STEPPED };
    struct Entry {
        const Optimizer *optimizer;
        gs_step step;
        Stage stage;
    };

    Entry *find(const Optimizer &optimizer)
    {
        for (auto &e : entries_)
            if (e.optimizer == &optimizer)
                return &e;
        return nullptr;
    }

    // The optimizer's step, ready to be unscaled.
    Entry &entry(const Optimizer &optimizer, const char *caller)
    {
        if (Entry *e = find(optimizer)) {
            if (e->stage == STEPPED)
                detail::fail(GS_ESTATE, std::string(caller) + " is called after step");
            if (e->stage == UNSCALED)
                detail::fail(GS_ESTATE, std::string(caller) +
                                            ": the optimizer's gradients have "
                                            "been unscaled since the last update");
            return *e;
        }
        const bool alone = std::all_of(entries_.begin(), entries_.end(),
                                       [](const Entry &e) { return e.stage == READY; });
        if (!alone && scaler_.rules.on_overflow != GS_ON_SKIP)
            detail::fail(GS_ESTATE, "several optimizers need on_overflow=skip: a batch that is "
                                    "retried would be applied twice by some");
        gs_step begun;
        gs_step_begin(&begun, &scaler_);
        entries_.push_back({&optimizer, begun, READY});
        return entries_.back();
    }

    // What the policy histogram sees.
    void look_at_exponents(gs_step &step, tensors list)
    {
        std::vector<gs_tensor> narrow;
        gs_exponents x = {};
        for (const auto &t : list)
            if (t.dtype != GS_F64)
                narrow.push_back(t);
            else
                for (std::size_t i = 0, cols = t.strided ? t.strided->cols : t.count; i < t.count;
                     i += cols)
                    gs_exponents_add_f64(&x,
                                         static_cast<const double *>(t.data) +
                                             (t.strided ? i / cols * t.strided->stride : i),
                                         cols, nullptr);
        ctx_.exponents(x, narrow);
        gs_step_exponents(&step, &scaler_, &x);
    }

    context ctx_;
    gs::scaler scaler_;
    std::deque<Entry> entries_;
};
} // namespace gs

#endif

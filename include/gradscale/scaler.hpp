// scaler.hpp: scaler.h in C++. See gradscale.hpp.
#ifndef GRADSCALE_SCALER_HPP
#define GRADSCALE_SCALER_HPP

#include "gradscale/scaler.h"
#include "gradscale/tensor.hpp"

namespace gs
{
GS_NAMESPACE_BEGIN

// A gs_scaler: plain data with its counters, rules and params. False if it could not be made.
struct scaler : gs_scaler {
#if GS_EXCEPTIONS
    scaler() : scaler("pytorch") {}
#else
    scaler() : gs_scaler() {} // false until it is loaded or assigned
#endif
    explicit scaler(const char *spec, gs_error *error GS_OR_THROW) : gs_scaler()
    {
        gs_error e = {};
        detail::done(gs_scaler_init(this, spec, &e), &e, error);
    }
    // settings: "key=value ..." of gs_scaler_set.
    scaler(const char *spec, const char *settings, gs_error *error GS_OR_THROW) : gs_scaler()
    {
        gs_error e = {};
        gs_status status = gs_scaler_init(this, spec, &e);
        if (status == GS_OK && (status = gs_scaler_set(this, settings, &e)) != GS_OK)
            static_cast<gs_scaler &>(*this) = gs_scaler();
        detail::done(status, &e, error);
    }
    explicit scaler(const gs_scaler &other) : gs_scaler(other) {}
    explicit operator bool() const { return size == sizeof(gs_scaler); }

    double scale() const { return gs_scaler_scale(this); }
    gs_health health() const { return gs_scaler_health(this); }
    bool set(const char *list, gs_error *error GS_OR_THROW)
    {
        gs_error e = {};
        return detail::done(gs_scaler_set(this, list, &e), &e, error);
    }
    std::string get(const char *key, gs_error *error GS_OR_THROW) const
    {
        gs_error e = {};
        char text[64] = "";
        detail::done(gs_scaler_get(text, sizeof text, this, key, &e), &e, error);
        return text;
    }
    bool set_scale(double scale, gs_error *error GS_OR_THROW)
    {
        gs_error e = {};
        return detail::done(gs_scaler_set_scale(this, scale, &e), &e, error);
    }
    bool resume(double scale, std::int64_t clean_steps, gs_error *error GS_OR_THROW)
    {
        gs_error e = {};
        return detail::done(gs_scaler_resume(this, scale, clean_steps, &e), &e, error);
    }
    int update(bool found) { return gs_scaler_update(this, found); } // the raw machine

    // What a user needs to be told, with the names of the tensors that were scanned.
    std::string explain(tensors list = {}) const
    {
        char text[512];
        return gs_scaler_explain(text, sizeof text, this, list.data(), list.size());
    }

    // All of it, as text.
    std::string save(gs_error *error GS_OR_THROW) const
    {
        gs_error e = {};
        char text[GS_STATE_TEXT_MAX];
        std::size_t used = 0;
        if (!detail::done(gs_scaler_save_text(text, sizeof text, &used, this, &e), &e, error))
            used = 0;
        return std::string(text, used);
    }
    bool load(const std::string &text, gs_error *error GS_OR_THROW)
    {
        gs_error e = {};
        return detail::done(gs_scaler_load_text(this, text.data(), text.size(), &e), &e, error);
    }
};

// A gs_step, begun. step.scale is what to multiply the loss by.
struct step : gs_step {
    explicit step(const gs_scaler &scaler) : gs_step() { gs_step_begin(this, &scaler); }

    void loss(double value) { gs_step_loss(this, value); }
    void scan(const gs_stats &found) { gs_step_scan(this, &found); }
    void scan_unscaled(const gs_stats &found) { gs_step_scan_unscaled(this, &found); }
    void sums(std::uint64_t n, std::uint64_t nonfinite, double amax, double sumsq)
    {
        gs_step_sums(this, n, nonfinite, amax, sumsq);
    }
    void flag(bool found) { gs_step_flag(this, found); }
    void amax(double value) { gs_step_amax(this, value); }
    void exponents(const gs_scaler &scaler, const gs_exponents &x)
    {
        gs_step_exponents(this, &scaler, &x);
    }
    void reject() { gs_step_reject(this); }
    void merge(const gs_step &from) { gs_step_merge(this, &from); }

    // Scans and unscales in place, or from `list` into `to`.
    bool unscale(const context &ctx, tensors list, gs_error *error GS_OR_THROW)
    {
        return ctx.done(gs_step_unscale(this, ctx.get(), nullptr, list.data(), list.size()), error);
    }
    bool unscale_to(const context &ctx, tensors to, tensors list, gs_error *error GS_OR_THROW)
    {
        static const gs_error e = {GS_ESIZE, "gradients and destinations differ in number"};
        if (to.size() != list.size())
            return detail::done(GS_ESIZE, &e, error);
        return ctx.done(gs_step_unscale(this, ctx.get(), to.data(), list.data(), list.size()),
                        error);
    }

    gs_verdict decide(const gs_scaler &scaler) const { return gs_step_decide(this, &scaler); }
    gs_verdict end(gs_scaler &scaler) { return gs_step_end(this, &scaler); }
    void abandon(gs_scaler &scaler) { gs_step_abandon(this, &scaler); }
};

// Several optimizers and one update of the scale.
inline bool end_steps(view<gs_step> steps, gs_scaler &scaler, gs_error *error GS_OR_THROW)
{
    gs_error e = {};
    return detail::done(gs_steps_end(steps.data(), steps.size(), &scaler, &e), &e, error);
}

// Gradient accumulation with a frozen scale.
struct window : gs_window {
    explicit window(const gs_scaler &scaler, gs_window_rule how = GS_SKIP_WINDOW) : gs_window()
    {
        gs_window_begin(this, &scaler, how);
    }
    bool add(const gs_step &micro) { return gs_window_add(this, &micro) != 0; }
    void merge(const gs_window &from) { gs_window_merge(this, &from); }
    gs_verdict end(gs_scaler &scaler) { return gs_window_end(this, &scaler); }
};

GS_NAMESPACE_END
} // namespace gs

#endif

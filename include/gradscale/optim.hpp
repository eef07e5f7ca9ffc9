// optim.hpp: optim.h in C++. See gradscale.hpp.
#ifndef GRADSCALE_OPTIM_HPP
#define GRADSCALE_OPTIM_HPP

#include "gradscale/optim.h"
#include "gradscale/scaler.hpp"

namespace gs
{
GS_NAMESPACE_BEGIN

class store
{
  public:
    store(const context &ctx, view<const gs_store_entry> entries, gs_store_types types,
          gs_error *error GS_OR_THROW)
    {
        gs_store *p = nullptr;
        const gs_status status =
            gs_store_create(&p, ctx.get(), entries.data(), entries.size(), types);
        self_.reset(p);
        ctx.done(status, error);
    }
    gs_store *get() const { return self_.get(); }
    explicit operator bool() const { return self_ != nullptr; }
    view<const gs_weight> weights() const
    {
        std::size_t n = 0;
        const gs_weight *list = gs_store_weights(get(), &n);
        return {list, n};
    }
    const gs_weight *find(const char *name) const { return gs_store_find(get(), name); } // or NULL
    gs_tensor data() const { return gs_store_data(get()); }
    gs_tensor copies() const { return gs_store_copies(get()); }
    gs_tensor grads() const { return gs_store_grads(get()); }

  private:
    struct release {
        void operator()(gs_store *p) const { gs_store_free(p); }
    };
    std::unique_ptr<gs_store, release> self_;
};

// A weight and its scaled gradient in memory of yours. To be filled in further: .copy, .flags.
template <class T, class G>
gs_weight weight(const char *name, std::size_t rows, std::size_t cols, T *data, G *grad,
                 unsigned flags = 0)
{
    gs_weight w = {};
    w.name = name;
    w.rows = rows;
    w.cols = cols;
    w.data = data;
    w.dtype = dtype_of<T>::value;
    w.grad = grad;
    w.grad_dtype = dtype_of<G>::value;
    w.flags = flags;
    return w;
}

inline gs_optim_config optim_config(const char *kind, const char *settings,
                                    gs_error *error GS_OR_THROW)
{
    gs_error e = {};
    gs_optim_config c = {};
    c.size = sizeof c;
    gs_status status = gs_optim_config_init(&c, kind, &e);
    if (status == GS_OK)
        status = gs_optim_config_set(&c, settings, &e);
    if (status != GS_OK)
        c.size = 0; // no optimizer can be made of it
    detail::done(status, &e, error);
    return c;
}

class optim
{
  public:
    optim(const context &ctx, view<const gs_weight> weights, const gs_optim_config &config,
          gs_error *error GS_OR_THROW)
        : ctx_(ctx.get())
    {
        gs_optim *p = nullptr;
        const gs_status status = gs_optim_create(&p, ctx_, weights.data(), weights.size(), &config);
        self_.reset(p);
        done(status, error);
    }
    gs_optim *get() const { return self_.get(); }
    explicit operator bool() const { return self_ != nullptr; }
    const gs_optim_config &config() const { return *gs_optim_get_config(get()); }

    gs_optim_report step(gs_step &step, gs_scaler &scaler, gs_error *error GS_OR_THROW)
    {
        gs_optim_report report = {};
        report.verdict.action = GS_FAIL;
        done(gs_optim_step(get(), &step, &scaler, &report), error);
        return report;
    }
    bool scan(gs_step &step, gs_error *error GS_OR_THROW)
    {
        return done(gs_optim_scan(get(), &step), error);
    }
    gs_optim_report act(const gs_step &step, gs_verdict verdict, gs_error *error GS_OR_THROW)
    {
        gs_optim_report report = {};
        report.verdict.action = GS_FAIL;
        done(gs_optim_act(get(), &step, verdict, &report), error);
        return report;
    }
    void clear_grads() { gs_optim_clear_grads(get()); }
    bool also_clear(tensors list, gs_error *error GS_OR_THROW)
    {
        return done(gs_optim_also_clear(get(), list.data(), list.size()), error);
    }

    double lr() const { return gs_optim_lr(get()); }
    bool set_lr(double lr, gs_error *error GS_OR_THROW)
    {
        return done(gs_optim_set_lr(get(), lr), error);
    }
    bool set_lr_factor(std::size_t t, double factor, gs_error *error GS_OR_THROW)
    {
        return done(gs_optim_set_lr_factor(get(), t, factor), error);
    }
    bool set_weight_decay(std::size_t t, double decay, gs_error *error GS_OR_THROW)
    {
        return done(gs_optim_set_weight_decay(get(), t, decay), error);
    }
    bool set_grads(tensors grads, gs_error *error GS_OR_THROW)
    {
        return done(gs_optim_set_grads(get(), grads.data(), grads.size()), error);
    }

    gs_tensor slot(std::size_t t, gs_slot slot) { return gs_optim_slot(get(), t, slot); }
    std::vector<float> read_slot(std::size_t t, gs_slot slot, gs_error *error GS_OR_THROW) const
    {
        std::vector<float> values(gs_optim_slot(get(), t, slot).count);
        if (!done(gs_optim_read_slot(values.data(), get(), t, slot, values.size()), error))
            values.clear();
        return values;
    }
    bool write_slot(std::size_t t, gs_slot slot, view<const float> values,
                    gs_error *error GS_OR_THROW)
    {
        return done(gs_optim_write_slot(get(), t, slot, values.data(), values.size()), error);
    }
    gs_optim_state state() const { return gs_optim_get_state(get()); }
    bool set_state(const gs_optim_state &state, gs_error *error GS_OR_THROW)
    {
        return done(gs_optim_set_state(get(), &state), error);
    }
    std::uint64_t steps() const { return gs_optim_steps(get()); }
    bool set_steps(std::uint64_t steps, gs_error *error GS_OR_THROW)
    {
        return done(gs_optim_set_steps(get(), steps), error);
    }
    std::uint64_t weight_steps(std::size_t t) const { return gs_optim_weight_steps(get(), t); }
    bool set_weight_steps(std::size_t t, std::uint64_t steps, gs_error *error GS_OR_THROW)
    {
        return done(gs_optim_set_weight_steps(get(), t, steps), error);
    }

  private:
    bool done(gs_status status, gs_error *error) const
    {
        return detail::done(status, gs_context_error(ctx_), error);
    }
    gs_context *ctx_;
    struct release {
        void operator()(gs_optim *p) const { gs_optim_free(p); }
    };
    std::unique_ptr<gs_optim, release> self_;
};

GS_NAMESPACE_END
} // namespace gs

#endif

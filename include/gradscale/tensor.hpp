// tensor.hpp: context.h, tensor.h, exponents.h and gemm.h in C++. See gradscale.hpp.
#ifndef GRADSCALE_TENSOR_HPP
#define GRADSCALE_TENSOR_HPP

#include "gradscale/base.hpp"
#include "gradscale/gemm.h"
#include "gradscale/exponents.h"

#include <memory>
#include <vector>

namespace gs
{
GS_NAMESPACE_BEGIN

using tensors = view<const gs_tensor>;

// ---- elements ----

// Halves as their bits. Other types of the same layout are added by specializing dtype_of.
struct f16 {
    std::uint16_t bits = 0;
    f16() = default;
    explicit f16(float x) : bits(gs_f32_to_f16(x)) {}
    operator float() const { return gs_f16_to_f32(bits); }
};
struct bf16 {
    std::uint16_t bits = 0;
    bf16() = default;
    explicit bf16(float x) : bits(gs_f32_to_bf16(x)) {}
    operator float() const { return gs_bf16_to_f32(bits); }
};
static_assert(sizeof(f16) == 2 && sizeof(bf16) == 2, "halves have no padding");

template <class T> struct dtype_of; // no value: not a type of gradients
template <> struct dtype_of<float> {
    static constexpr gs_dtype value = GS_F32;
};
template <> struct dtype_of<double> {
    static constexpr gs_dtype value = GS_F64;
};
template <> struct dtype_of<f16> {
    static constexpr gs_dtype value = GS_F16;
};
template <> struct dtype_of<bf16> {
    static constexpr gs_dtype value = GS_BF16;
};

// Of a vector, array or span. One of const elements may only be read: a source.
template <class C, class T = detail::element<C>>
gs_tensor tensor(C &&values, const char *name = nullptr)
{
    static_assert(std::is_lvalue_reference_v<C> || !std::is_same_v<C, std::vector<T>>,
                  "a tensor is a view: the values must live on");
    constexpr gs_dtype dtype = dtype_of<std::remove_const_t<T>>::value;
    if constexpr (std::is_const_v<T>)
        return gs_tensor_source(std::data(values), std::size(values), dtype, name);
    else
        return {std::data(values), std::size(values), dtype, name, nullptr};
}

// Of memory whose type is known at run time. `strided` must outlive the tensor.
inline gs_tensor tensor(void *data, std::size_t count, gs_dtype dtype, const char *name = nullptr,
                        const gs_strided *strided = nullptr)
{
    return {data, count, dtype, name, strided};
}

inline bool finite(const gs_stats &stats) { return gs_stats_finite(&stats) != 0; }

// ---- context and passes ----

inline gs_config config(unsigned threads = 0)
{
    gs_config c = {};
    c.size = sizeof c;
    c.threads = threads;
    return c;
}

class context
{
  public:
#if GS_EXCEPTIONS
    context() : context(gs::config()) {}
#endif
    explicit context(const gs_config &config, gs_error *error GS_OR_THROW)
    {
        gs_error e = {};
        gs_context *p = nullptr;
        const gs_status status = gs_context_create(&p, &config, &e);
        self_.reset(p);
        detail::done(status, &e, error);
    }

    gs_context *get() const { return self_.get(); }
    explicit operator bool() const { return self_ != nullptr; }
    unsigned threads() const { return gs_context_threads(get()); }
    unsigned cpu() const { return gs_context_cpu(get()); }

    // The statistics that the C functions give; of count and round one per tensor.
    gs_stats check(tensors list, gs_error *error GS_OR_THROW) const
    {
        gs_stats s = stats();
        done(gs_tensors_check(get(), list.data(), list.size(), &s), error);
        return s;
    }
    gs_stats scan(tensors list, gs_error *error GS_OR_THROW) const
    {
        gs_stats s = stats();
        done(gs_tensors_scan(get(), list.data(), list.size(), &s), error);
        return s;
    }
    gs_stats scale(tensors list, float factor, gs_error *error GS_OR_THROW) const
    {
        gs_stats s = stats();
        done(gs_tensors_scale(get(), list.data(), list.size(), factor, &s), error);
        return s;
    }
    gs_stats scale_to(tensors dst, tensors src, float factor, gs_error *error GS_OR_THROW) const
    {
        gs_stats s = stats();
        if (pairs(dst, src, error))
            done(gs_tensors_scale_to(get(), dst.data(), src.data(), src.size(), factor, &s), error);
        return s;
    }
    gs_stats unscale(tensors dst, tensors src, float factor, gs_error *error GS_OR_THROW) const
    {
        gs_stats s = stats();
        if (pairs(dst, src, error))
            done(gs_tensors_unscale(get(), dst.data(), src.data(), src.size(), factor, &s), error);
        return s;
    }
    gs_stats convert(tensors dst, tensors src, gs_error *error GS_OR_THROW) const
    {
        gs_stats s = stats();
        if (pairs(dst, src, error))
            done(gs_tensors_convert(get(), dst.data(), src.data(), src.size(), &s), error);
        return s;
    }
    gs_stats convert_stochastic(tensors dst, tensors src, std::uint64_t seed,
                                gs_error *error GS_OR_THROW) const
    {
        gs_stats s = stats();
        if (pairs(dst, src, error))
            done(gs_tensors_convert_stochastic(get(), dst.data(), src.data(), src.size(), seed, &s),
                 error);
        return s;
    }
    gs_stats axpy(tensors dst, tensors src, float factor, gs_error *error GS_OR_THROW) const
    {
        gs_stats s = stats();
        if (pairs(dst, src, error))
            done(gs_tensors_axpy(get(), dst.data(), src.data(), src.size(), factor, &s), error);
        return s;
    }
    std::vector<gs_stats> count(tensors list, gs_dtype half, gs_error *error GS_OR_THROW) const
    {
        std::vector<gs_stats> each(list.size(), stats());
        done(gs_tensors_count(get(), list.data(), list.size(), half, each.data()), error);
        return each;
    }
    std::vector<gs_stats> round(tensors list, gs_dtype half, gs_error *error GS_OR_THROW) const
    {
        std::vector<gs_stats> each(list.size(), stats());
        done(gs_tensors_round(get(), list.data(), list.size(), half, each.data()), error);
        return each;
    }
    gs_stats exponents(gs_exponents &sum, tensors list, gs_error *error GS_OR_THROW) const
    {
        gs_stats s = stats();
        done(gs_tensors_exponents(get(), &sum, list.data(), list.size(), &s), error);
        return s;
    }
    bool gemm(const gs_gemm &product, gs_error *error GS_OR_THROW) const
    {
        return done(gs_gemm_run(get(), &product), error);
    }

    // How a C call on this context, or on what is made from it, ended.
    bool done(gs_status status, gs_error *error GS_OR_THROW) const
    {
        return detail::done(status, self_ ? gs_context_error(get()) : nullptr, error);
    }

  private:
    static gs_stats stats()
    {
        gs_stats s;
        gs_stats_init(&s);
        return s;
    }
    static bool pairs(tensors dst, tensors src, gs_error *error)
    {
        static const gs_error e = {GS_ESIZE, "sources and destinations differ in number"};
        return detail::done(dst.size() == src.size() ? GS_OK : GS_ESIZE, &e, error);
    }
    struct release {
        void operator()(gs_context *p) const { gs_context_free(p); }
    };
    std::unique_ptr<gs_context, release> self_;
};

GS_NAMESPACE_END
} // namespace gs

#endif

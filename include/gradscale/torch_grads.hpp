// torch_grads.hpp: the gradients of a libtorch optimizer as a list for passes. For torch.hpp.
#ifndef GRADSCALE_TORCH_GRADS_HPP
#define GRADSCALE_TORCH_GRADS_HPP

#include "gradscale/gradscale.hpp"

#include <deque>
#include <torch/optim.h>

namespace gs
{
// Vectors and views of libtorch's halves are tensors: gs::tensor(values).
template <> struct dtype_of<c10::Half> {
    static constexpr gs_dtype value = GS_F16;
};
template <> struct dtype_of<c10::BFloat16> {
    static constexpr gs_dtype value = GS_BF16;
};

namespace detail
{
using ::torch::Tensor;
using ::torch::optim::Optimizer;

[[noreturn]] inline void fail(gs_status status, const std::string &message)
{
    throw error(status, message);
}

inline gs_dtype dtype(const Tensor &grad, const std::string &name)
{
    static const struct {
        at::ScalarType theirs;
        gs_dtype ours;
    } types[] = {
        {at::kFloat, GS_F32}, {at::kHalf, GS_F16}, {at::kBFloat16, GS_BF16}, {at::kDouble, GS_F64}};
    for (const auto &t : types)
        if (t.theirs == grad.scalar_type())
            return t.ours;
    fail(GS_EDTYPE, name + " is " + c10::toString(grad.scalar_type()) +
                        ": gradients are f32, f16, bf16 or f64");
}

// Gradients as a list for the passes. Everything is checked while it is collected.
class Gradients
{
  public:
    explicit Gradients(Optimizer &optimizer)
    {
        std::size_t group = 0;
        for (auto &g : optimizer.param_groups()) {
            std::size_t index = 0;
            for (auto &parameter : g.params())
                add(parameter,
                    "gradient " + std::to_string(index++) + " of group " + std::to_string(group));
            group++;
        }
        for (auto &parameter : uncoalesced_) { // the sums may overflow where no term does
            parameter.mutable_grad() = parameter.grad().coalesce();
            place(parameter.grad()._values(), "a sparse gradient");
        }
    }
    tensors list() const { return list_; }

    void copy_back() const
    {
        for (auto &[grad, copy] : copies_)
            grad.copy_(copy);
    }

  private:
    void add(Tensor &parameter, std::string name)
    {
        const Tensor &grad = parameter.grad();
        if (!grad.defined())
            return;
        Tensor values = grad;
        if (!grad.device().is_cpu())
            fail(
                GS_ESTATE,
                name + " is on " + grad.device().str() +
                    ", and only CPU tensors are unscaled here: unscale it there by 1 / get_scale() "
                    "(at::_amp_foreach_non_finite_check_and_unscale_), then tell what was found by "
                    "unscaled_(optimizer, found_inf)");
        if (grad.layout() == c10::kSparse) {
            const bool sums = grad.scalar_type() == at::kHalf && !grad.is_coalesced();
            if (sums)
                uncoalesced_.push_back(parameter);
            values = sums ? Tensor() : grad._values();
        } else if (grad.layout() != c10::kStrided)
            fail(GS_EDTYPE, name + ": gradients are dense or sparse COO tensors");
        if (values.defined())
            place(values, std::move(name));
    }

    // Where it lies in memory; by a copy, if rows of equal length do not describe that.
    void place(Tensor values, std::string name)
    {
        const gs_dtype type = dtype(values, name);
        const auto size = values.sizes(), stride = values.strides();
        for (std::int64_t d = 0; d < values.dim(); d++)
            if (size[std::size_t(d)] > 1 && stride[std::size_t(d)] == 0)
                fail(GS_ESTATE, name + " is an expanded view: its elements share memory");
        const gs_strided *strided = nullptr;
        bool copied = false;
        if (!values.is_non_overlapping_and_dense() && values.numel() > 0) {
            const bool matrix = values.dim() == 2;
            if (values.dim() == 1)
                strides_.push_back({1, std::size_t(stride[0])});
            else if (matrix && stride[1] == 1 && stride[0] >= size[1])
                strides_.push_back({std::size_t(size[1]), std::size_t(stride[0])});
            else if (matrix && stride[0] == 1 && stride[1] >= size[0])
                strides_.push_back({std::size_t(size[0]), std::size_t(stride[1])});
            else {
                Tensor copy = values.contiguous();
                copies_.emplace_back(values, copy);
                values = copy;
                copied = true;
            }
            strided = copied ? nullptr : &strides_.back();
        }
        names_.push_back(std::move(name));
        list_.push_back(tensor(values.data_ptr(), std::size_t(values.numel()), type,
                               names_.back().c_str(), strided));
    }

    std::vector<gs_tensor> list_;
    std::vector<std::pair<Tensor, Tensor>> copies_;
    std::vector<Tensor> uncoalesced_;
    std::deque<gs_strided> strides_; // elements stay where they are
    std::deque<std::string> names_;
};
} // namespace detail

} // namespace gs

#endif

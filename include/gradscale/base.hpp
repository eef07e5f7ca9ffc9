// base.hpp: errors and views. gradscale.hpp says how they are used.
#ifndef GRADSCALE_BASE_HPP
#define GRADSCALE_BASE_HPP

#include "gradscale/base.h"

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <initializer_list>
#include <iterator>
#include <string>
#include <type_traits>
#include <utility>

#if defined(__cpp_exceptions) || defined(_CPPUNWIND)
#include <stdexcept>
#define GS_EXCEPTIONS 1
#define GS_OR_THROW   = nullptr
#define GS_NAMESPACE_BEGIN
#define GS_NAMESPACE_END
#else // other functions, so other names, than in files that are compiled with exceptions
#define GS_EXCEPTIONS 0
#define GS_OR_THROW
#define GS_NAMESPACE_BEGIN              \
    inline namespace without_exceptions \
    {
#define GS_NAMESPACE_END }
#endif

namespace gs
{
GS_NAMESPACE_BEGIN

#if GS_EXCEPTIONS
struct error : std::runtime_error {
    gs_status status;
    error(gs_status code, const std::string &message) : std::runtime_error(message), status(code) {}
    explicit error(const gs_error &e) : error(e.status, e.text) {}
};
#endif

namespace detail
{
// Ends every call that can fail: `from` has the message, `to` is the caller's or NULL.
inline bool done(gs_status status, const gs_error *from, gs_error *to)
{
    if (to)
        to->status = GS_OK;
    if (status == GS_OK)
        return true;
    gs_error e = {};
    if (from && from->status == status)
        e = *from;
    else
        std::snprintf(e.text, sizeof e.text, "%s", gs_status_meaning(status));
    e.status = status;
    if (to) {
        *to = e;
        return false;
    }
#if GS_EXCEPTIONS
    throw error(e);
#else
    return false;
#endif
}

template <class C> using element = std::remove_pointer_t<decltype(std::data(std::declval<C &>()))>;
} // namespace detail

// ---- views ----

// A pointer and a count, as std::span: of a vector, array, span, list in braces or anything else
// with data() and size().
template <class T> class view
{
  public:
    constexpr view() = default;
    constexpr view(T *data, std::size_t size) : data_(data), size_(size) {}
    template <class C, class = std::enable_if_t<
                           !std::is_same_v<std::remove_cv_t<std::remove_reference_t<C>>, view> &&
                           std::is_convertible_v<detail::element<C> (*)[], T (*)[]>>>
    constexpr view(C &&c) : data_(std::data(c)), size_(std::size(c))
    {
    }
    // For an argument: it lives as long as the call.
    constexpr view(std::initializer_list<std::remove_const_t<T>> list)
        : view(std::data(list), list.size())
    {
    }

    constexpr T *data() const { return data_; }
    constexpr std::size_t size() const { return size_; }
    constexpr bool empty() const { return size_ == 0; }
    constexpr T *begin() const { return data_; }
    constexpr T *end() const { return data_ + size_; }
    constexpr T &operator[](std::size_t i) const { return data_[i]; }

  private:
    T *data_ = nullptr;
    std::size_t size_ = 0;
};

GS_NAMESPACE_END
} // namespace gs

#endif

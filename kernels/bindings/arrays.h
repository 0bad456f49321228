// Arrays that are passed between Python and C++: contiguous CPU vectors are read in place; results own their memory.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <span>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace fewstep {

// An array from Python. One with another layout or type than the function takes is copied, unless its values repeat, as those of
// numpy's `broadcast_to`, and take far more memory when they are written out: that array is refused.
template <typename... Config>
struct Given : nanobind::ndarray<Config...> {
    Given() = default;
    explicit Given(const nanobind::ndarray<Config...>& array) : nanobind::ndarray<Config...>(array) {}
};

template <typename T>
using Vector = Given<const T, nanobind::ndim<1>, nanobind::c_contig, nanobind::device::cpu>;
template <typename T>
using Cube = Given<const T, nanobind::ndim<3>, nanobind::c_contig, nanobind::device::cpu>;
template <typename T>
using MutableVector = Given<T, nanobind::ndim<1>, nanobind::c_contig, nanobind::device::cpu>;
template <typename T>
using MutableCube = Given<T, nanobind::ndim<3>, nanobind::c_contig, nanobind::device::cpu>;
template <typename T>
using Result = nanobind::ndarray<nanobind::numpy, T, nanobind::ndim<1>>;

template <typename T>
std::span<const T> view(const Vector<T>& vector) {
    return {vector.data(), vector.size()};
}

// Numbers by name, and values of several types by name.
using Counts = nanobind::typed<nanobind::dict, nanobind::str, int>;
using Description = nanobind::typed<nanobind::dict, nanobind::str, nanobind::any>;

// Return a numpy vector that owns the values.
template <typename T>
Result<T> own(std::vector<T> values) {
    auto* kept = new std::vector<T>(std::move(values));
    nanobind::capsule owner(kept, [](void* at) noexcept { delete static_cast<std::vector<T>*>(at); });
    return Result<T>(kept->data(), {kept->size()}, owner);
}

// Return the results of a function of each value. Vectors and std::tuple of C++ show their types in the signatures of Python.
template <typename Values, typename Function>
auto mapped(const Values& values, const Function& function) {
    std::vector<decltype(function(*std::begin(values)))> results;
    results.reserve(std::size(values));
    for (const auto& value : values) results.push_back(function(value));
    return results;
}

// "[row]: expected ", which follows the name of an array. It is put together from left to right: GCC 12 warns of an overflow where
// "[" + std::to_string(row) is compiled inline (its bug 105651).
inline std::string expected_at(std::size_t row) {
    std::string text = "[";
    text += std::to_string(row);
    text += "]: expected ";
    return text;
}

inline void require(bool holds, const std::string& message) {
    if (!holds) throw std::invalid_argument(message);
}

// Whether an array takes more than MAX_REPEATED elements beyond those that lie between its first and its last one.
inline bool repeats(const nanobind::ndarray<nanobind::ro>& array) {
    constexpr double MAX_REPEATED = 1 << 22;
    double elements = 1, reached = 1;
    for (std::size_t axis = 0; axis < array.ndim(); ++axis) {
        const auto size = static_cast<double>(array.shape(axis));
        elements *= size;
        reached += (size - 1) * std::abs(static_cast<double>(array.stride(axis)));
    }
    return elements > reached + MAX_REPEATED;
}

}  // namespace fewstep

namespace nanobind::detail {

template <typename... Config>
struct type_caster<fewstep::Given<Config...>> {
    using Array = type_caster<ndarray<Config...>>;
    NB_TYPE_CASTER(fewstep::Given<Config...>, Array::Name)

    bool from_python(handle source, std::uint32_t flags, cleanup_list* cleanup) noexcept {
        Array array;
        const auto as_it_is = flags & ~static_cast<std::uint32_t>(cast_flags::convert);
        if (!array.from_python(source, as_it_is, cleanup)) {
            type_caster<ndarray<ro>> any;
            if (!(flags & cast_flags::convert) || !any.from_python(source, as_it_is, cleanup)) return false;
            if (any.value.is_valid() && fewstep::repeats(any.value)) return false;
            if (!array.from_python(source, flags, cleanup)) return false;
        }
        value = fewstep::Given<Config...>(array.value);
        return true;
    }
};

}  // namespace nanobind::detail

// Arrays that are passed between Python and C++: contiguous CPU vectors are read in place; results own their memory.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstddef>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace fewstep {

template <typename T>
using Vector = nanobind::ndarray<const T, nanobind::ndim<1>, nanobind::c_contig, nanobind::device::cpu>;
template <typename T>
using Cube = nanobind::ndarray<const T, nanobind::ndim<3>, nanobind::c_contig, nanobind::device::cpu>;
template <typename T>
using MutableVector = nanobind::ndarray<T, nanobind::ndim<1>, nanobind::c_contig, nanobind::device::cpu>;
template <typename T>
using MutableCube = nanobind::ndarray<T, nanobind::ndim<3>, nanobind::c_contig, nanobind::device::cpu>;
template <typename T>
using Result = nanobind::ndarray<nanobind::numpy, T, nanobind::ndim<1>>;

template <typename T>
std::span<const T> view(const Vector<T>& vector) {
    return {vector.data(), vector.size()};
}

// Return a numpy vector that owns the values.
template <typename T>
Result<T> own(std::vector<T> values) {
    auto* kept = new std::vector<T>(std::move(values));
    nanobind::capsule owner(kept, [](void* at) noexcept { delete static_cast<std::vector<T>*>(at); });
    return Result<T>(kept->data(), {kept->size()}, owner);
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

}  // namespace fewstep

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
using MutableVector = nanobind::ndarray<T, nanobind::ndim<1>, nanobind::c_contig, nanobind::device::cpu>;
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

inline void require(bool holds, const std::string& message) {
    if (!holds) throw std::invalid_argument(message);
}

}  // namespace fewstep

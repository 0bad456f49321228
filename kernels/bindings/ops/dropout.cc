#include "csrc/ops/training/dropout.h"

#include <string>

#include "bindings/arrays.h"
#include "bindings/bindings.h"
#include "bindings/numbers.h"
#include "bindings/ops/dropout.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace fewstep {

Dropout dropout_of(double probability, std::uint64_t seed) {
    const auto rounded = static_cast<float>(probability);
    require(rounded >= 0.0F && rounded < 1.0F,
            "dropout: expected a probability from 0 to below 1, got " + std::to_string(probability));
    return {rounded, seed};
}

namespace {

template <typename Value>
using Values = nb::ndarray<Value, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

template <typename Value>
void drop(const Values<const Value>& x, const Values<Value>& dropped, double probability, std::uint64_t seed, int threads) {
    require(dropped.size() == x.size(),
            "dropped: expected " + std::to_string(x.size()) + " values, got " + std::to_string(dropped.size()));
    require_threads(threads);
    const Dropout options = dropout_of(probability, seed);
    const nb::gil_scoped_release release;
    dropout<Value>(options, x.data(), dropped.data(), x.size(), threads);
}

template <typename Value>
void bind(nb::module_& module) {
    module.def("dropout", drop<Value>, nb::arg("x").noconvert(), nb::arg("dropped").noconvert(), nb::kw_only(), "probability"_a,
               "seed"_a, "threads"_a);
}

}  // namespace

void bind_dropout(nb::module_& module) {
    bind<float>(module);
    bind<std::uint16_t>(module);
}

}  // namespace fewstep

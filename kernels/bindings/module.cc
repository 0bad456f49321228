#include "bindings/bindings.h"

namespace nb = nanobind;

// Raised when a signature changes; kernels/native.py asks for the same number.
constexpr int ABI = 1;

NB_MODULE(fewstep_native, module) {
    module.attr("ABI") = ABI;
    fewstep::bind_bitext(module);
    fewstep::bind_fast_align(module);
    fewstep::bind_align_shards(module);
    fewstep::bind_symmetrise(module);
}

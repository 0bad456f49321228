// A module for the example alone, in place of kernels/bindings/module.cc.
#include <nanobind/nanobind.h>

namespace fewstep {

void bind_lcs(nanobind::module_& module);

}  // namespace fewstep

NB_MODULE(fewstep_example, module) { fewstep::bind_lcs(module); }

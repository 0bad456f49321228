// What each file of bindings offers to the module: a function that adds its kernels.
#pragma once

#include <nanobind/nanobind.h>

namespace fewstep {

void add_ngram(nanobind::module_& module);

}  // namespace fewstep

// The instruction-set levels that this processor runs. Compiled for the baseline of the architecture.
#pragma once

#include <string>
#include <vector>

namespace fewstep {

// Return the names of the levels, lowest first. A level is listed only if the operating system saves its registers too.
std::vector<std::string> processor_levels();

}  // namespace fewstep

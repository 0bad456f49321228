#include "csrc/inference/network/arrays.h"

#include <algorithm>
#include <stdexcept>

namespace fewstep {

namespace {

template <typename Sizes>
std::string listed(const Sizes& sizes) {
    std::string text;
    for (const std::size_t size : sizes) text.append(text.empty() ? "" : ",").append(std::to_string(size));
    return text;
}

}  // namespace

const float* Arrays::at(const std::string& name, std::initializer_list<std::size_t> sizes) const {
    const auto found = arrays_.find(name);
    if (found == arrays_.end()) throw std::invalid_argument("arrays: missing " + name);
    if (!std::ranges::equal(found->second.sizes, sizes))
        throw std::invalid_argument("arrays: " + name + ": expected [" + listed(sizes) + "], got [" + listed(found->second.sizes) +
                                    "]");
    return found->second.values;
}

}  // namespace fewstep

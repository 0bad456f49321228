// The weights of a network by name, each read with the sizes that the network needs.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <map>
#include <string>
#include <vector>

namespace fewstep {

class Arrays {
  public:
    void add(const std::string& name, const float* values, std::vector<std::size_t> sizes) {
        arrays_.insert_or_assign(name, Array{values, std::move(sizes)});
    }
    bool has(const std::string& name) const { return arrays_.contains(name); }
    // Return the values of an array of these sizes. Throws std::invalid_argument for one that is missing or has others.
    const float* at(const std::string& name, std::initializer_list<std::size_t> sizes) const;

  private:
    struct Array {
        const float* values;
        std::vector<std::size_t> sizes;
    };
    std::map<std::string, Array> arrays_;
};

}  // namespace fewstep

// Words and their ids, numbered in order of first appearance.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace fewstep {

class Dictionary {
  public:
    static constexpr std::uint32_t ABSENT = 0xffffffffu;

    // Return the id of a word, adding the word if it is new.
    std::uint32_t add(std::string_view word);
    // Return the id of a word, or ABSENT.
    std::uint32_t find(std::string_view word) const;

    std::string_view word(std::uint32_t id) const {
        const std::uint64_t start = id == 0 ? 0 : ends_[id - 1];
        return std::string_view(letters_).substr(start, ends_[id] - start);
    }
    std::uint32_t size() const { return static_cast<std::uint32_t>(ends_.size()); }

  private:
    std::size_t slot_of(std::string_view word) const;
    void grow();

    std::string letters_;
    std::vector<std::uint64_t> ends_;
    std::vector<std::uint32_t> slots_;  // open addressing, size a power of two, at most half full
};

}  // namespace fewstep

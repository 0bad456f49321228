#include "csrc/ops/align/dictionary.h"

#include <functional>
#include <stdexcept>

namespace fewstep {

std::size_t Dictionary::slot_of(std::string_view word) const {
    std::size_t slot = std::hash<std::string_view>{}(word) & (slots_.size() - 1);
    while (slots_[slot] != ABSENT && this->word(slots_[slot]) != word) slot = (slot + 1) & (slots_.size() - 1);
    return slot;
}

void Dictionary::grow() {
    slots_.assign(slots_.empty() ? 1024 : 2 * slots_.size(), ABSENT);
    for (std::uint32_t id = 0; id < size(); ++id) slots_[slot_of(word(id))] = id;
}

std::uint32_t Dictionary::add(std::string_view word) {
    if (2 * ends_.size() >= slots_.size()) grow();
    const std::size_t slot = slot_of(word);
    if (slots_[slot] == ABSENT) {
        if (ends_.size() >= ABSENT - 1) throw std::runtime_error("dictionary: more than 2^32 - 2 distinct words");
        slots_[slot] = size();
        letters_ += word;
        ends_.push_back(letters_.size());
    }
    return slots_[slot];
}

std::uint32_t Dictionary::find(std::string_view word) const { return slots_.empty() ? ABSENT : slots_[slot_of(word)]; }

}  // namespace fewstep

#include "csrc/inference/ngram/text.h"

#include <algorithm>

namespace fewstep {

std::vector<std::string_view> split_at_lines(std::string_view text, std::size_t bytes) {
    std::vector<std::string_view> is_separator;
    while (!text.empty()) {
        const std::size_t newline = text.find('\n', std::min(text.size(), bytes) - 1);
        const std::size_t length = newline == text.npos ? text.size() : newline + 1;
        is_separator.push_back(text.substr(0, length));
        text.remove_prefix(length);
    }
    return is_separator;
}

}  // namespace fewstep

// Words and lines of text, as n-gram models read them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace fewstep {

// The special words of every n-gram model, with the first ids.
enum : std::uint32_t { NGRAM_UNKNOWN = 0, NGRAM_BEGIN = 1, NGRAM_END = 2, NGRAM_SPECIAL = 3 };
inline constexpr const char* NGRAM_SPECIAL_WORDS[NGRAM_SPECIAL] = {"<unk>", "<s>", "</s>"};

// Call word(text) for every word of a line. Words are separated by spaces, tabs, carriage returns and zero bytes.
template <typename Word>
void for_each_word(std::string_view line, const Word& word) {
    const auto is_separator = [](char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\0'; };
    const char* at = line.data();
    const char* const end = at + line.size();
    while (at < end) {
        if (is_separator(*at)) {
            ++at;
            continue;
        }
        const char* const first = at;
        while (at < end && !is_separator(*at)) ++at;
        word(std::string_view(first, static_cast<std::size_t>(at - first)));
    }
}

// Call line(text) for every line, without its newline. Text after the last newline is a line unless it is empty.
template <typename Line>
void for_each_line(std::string_view text, const Line& line) {
    while (!text.empty()) {
        const std::size_t length = text.find('\n');
        line(text.substr(0, length));
        text.remove_prefix(length == text.npos ? text.size() : length + 1);
    }
}

// Split a text at ends of lines into parts of about `bytes` bytes.
std::vector<std::string_view> split_at_lines(std::string_view text, std::size_t bytes);

}  // namespace fewstep

// Text as the word ids that n-gram estimation counts.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace fewstep {

// The words that every n-gram model has, first in this order.
enum : std::uint32_t { NGRAM_UNKNOWN = 0, NGRAM_BEGIN = 1, NGRAM_END = 2, NGRAM_SPECIAL = 3 };
inline constexpr const char* NGRAM_SPECIAL_WORDS[NGRAM_SPECIAL] = {"<unk>", "<s>", "</s>"};

struct NgramCorpus {
    std::vector<std::string> words;  // by id: the special ones, then by first appearance
    std::vector<std::uint32_t> ids;  // <s> words </s>, sentence after sentence
    std::uint64_t sentences = 0;
    std::uint64_t skipped = 0;  // special words of the text that were taken for white space
};

// Calls word(text) for every word of a line. Words are what stands between spaces, tabs, carriage returns and zero bytes.
template <typename Word>
void for_each_word(std::string_view line, const Word& word) {
    const auto parts = [](char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\0'; };
    const char* at = line.data();
    const char* const end = at + line.size();
    while (at < end) {
        if (parts(*at)) {
            ++at;
            continue;
        }
        const char* const first = at;
        while (at < end && !parts(*at)) ++at;
        word(std::string_view(first, static_cast<std::size_t>(at - first)));
    }
}

// Calls line(text) for every line, without its newline. What follows the last newline is a line unless it is empty.
template <typename Line>
void for_each_line(std::string_view text, const Line& line) {
    while (!text.empty()) {
        const std::size_t length = text.find('\n');
        line(text.substr(0, length));
        text.remove_prefix(length == text.npos ? text.size() : length + 1);
    }
}

// Parts of a text that end where a line does, each of about `bytes` bytes.
std::vector<std::string_view> split_at_lines(std::string_view text, std::size_t bytes);

// One sentence a line; an empty line is a sentence without words. A special word in the text is skipped, or an error
// (std::invalid_argument). The result does not depend on `threads`.
NgramCorpus read_ngram_corpus(std::string_view text, bool skip_special, int threads);

}  // namespace fewstep

// Sentence pairs as word ids.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace fewstep {

// Words and their ids, numbered in order of first appearance.

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

// The word ids of sentences, one after the other.
struct Sentences {
    std::vector<std::uint32_t> words;
    std::vector<std::uint64_t> starts{0};

    std::int64_t size() const { return static_cast<std::int64_t>(starts.size()) - 1; }
    std::span<const std::uint32_t> operator[](std::int64_t index) const {
        const auto at = static_cast<std::size_t>(index);
        return std::span(words).subspan(starts[at], starts[at + 1] - starts[at]);
    }
    void end_sentence() { starts.push_back(words.size()); }
};

struct Bitext {
    Dictionary words;  // of both languages; empty if ids were given
    Sentences source, target;
    std::uint32_t source_size = 0, target_size = 0;  // exclusive upper bounds of the ids of each side
    std::int64_t carriage_returns = 0;               // lines that ended in CR LF

    // Add `source words ||| target words`. Spaces and tabs separate words; the first `|||` or tab separates the sides, and a later
    // one is the target word `|||`. Without a separator the target is empty.
    void add_line(std::string_view line);
    // Add a pair given as two lines, split at spaces and tabs.
    void add_pair(std::string_view source_line, std::string_view target_line);
    void measure() { source_size = target_size = words.size(); }
};

// Call on_word(word) for each maximal run without spaces and tabs, on_tab() for each tab.
template <typename OnWord, typename OnTab>
void split_words(std::string_view line, const OnWord& on_word, const OnTab& on_tab) {
    std::size_t start = 0;
    const auto end_word = [&](std::size_t end) {
        if (end > start) on_word(line.substr(start, end - start));
        start = end + 1;
    };
    for (std::size_t i = 0; i < line.size(); ++i) {
        if (line[i] != ' ' && line[i] != '\t') continue;
        end_word(i);
        if (line[i] == '\t') on_tab();
    }
    end_word(line.size());
}

// Read all lines of a text file; `-` is the standard input. A CR at the end of a line is dropped.
Bitext read_bitext(const char* path);

}  // namespace fewstep

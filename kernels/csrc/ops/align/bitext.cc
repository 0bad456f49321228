#include "csrc/ops/align/bitext.h"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>

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

namespace {

constexpr std::string_view SEPARATOR = "|||";

struct Line {
    char* text = nullptr;
    std::size_t capacity = 0;
    ~Line() { std::free(text); }
};

}  // namespace

void Bitext::add_line(std::string_view line) {
    if (line.ends_with('\r')) {
        line.remove_suffix(1);
        ++carriage_returns;
    }
    Sentences* side = &source;
    const auto on_word = [&](std::string_view word) {
        if (side == &source && word == SEPARATOR)
            side = &target;
        else
            side->words.push_back(words.add(word));
    };
    split_words(line, on_word, [&] { on_word(SEPARATOR); });
    source.end_sentence();
    target.end_sentence();
}

void Bitext::add_pair(std::string_view source_line, std::string_view target_line) {
    const auto add = [&](std::string_view line, Sentences& side) {
        split_words(line, [&](std::string_view word) { side.words.push_back(words.add(word)); }, [] {});
        side.end_sentence();
    };
    add(source_line, source);
    add(target_line, target);
}

Bitext read_bitext(const char* path) {
    const bool standard = std::strcmp(path, "-") == 0;
    std::FILE* opened = standard ? stdin : std::fopen(path, "rb");
    if (!opened) throw std::runtime_error(std::string(path) + ": cannot be read: " + std::strerror(errno));
    const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(opened, standard ? [](std::FILE*) { return 0; } : std::fclose);
    Bitext bitext;
    Line line;
    for (ssize_t length; (length = getline(&line.text, &line.capacity, file.get())) >= 0;) {
        if (length > 0 && line.text[length - 1] == '\n') --length;
        bitext.add_line(std::string_view(line.text, static_cast<std::size_t>(length)));
    }
    if (std::ferror(file.get())) throw std::runtime_error(std::string(path) + ": cannot be read: " + std::strerror(errno));
    bitext.measure();
    bitext.source.words.shrink_to_fit();
    bitext.target.words.shrink_to_fit();
    return bitext;
}

}  // namespace fewstep

#include "csrc/ops/ngram/corpus.h"

#include <algorithm>
#include <stdexcept>
#include <unordered_map>

#include "csrc/base/parallel.h"

namespace fewstep {

namespace {

constexpr std::size_t PART_BYTES = 4 << 20;

// A part of the text, with local word ids.
struct Part {
    std::vector<std::string_view> words;  // by local id, without the special words
    std::vector<std::uint32_t> ids;
    std::uint64_t sentences = 0;
    std::vector<std::string_view> special;  // occurrences of special words in the text
};

Part read_part(std::string_view text) {
    Part part;
    std::unordered_map<std::string_view, std::uint32_t> index;
    for (std::uint32_t id = 0; id < NGRAM_SPECIAL; ++id) index.emplace(NGRAM_SPECIAL_WORDS[id], id);
    for_each_line(text, [&](std::string_view line) {
        ++part.sentences;
        part.ids.push_back(NGRAM_BEGIN);
        for_each_word(line, [&](std::string_view word) {
            const auto [found, added] = index.try_emplace(word, static_cast<std::uint32_t>(index.size()));
            if (added) part.words.push_back(word);
            if (found->second < NGRAM_SPECIAL) {
                part.special.push_back(word);
            } else {
                part.ids.push_back(found->second);
            }
        });
        part.ids.push_back(NGRAM_END);
    });
    return part;
}

void reject_special(std::string_view text, std::string_view word) {
    const auto line = 1 + std::count(text.data(), word.data(), '\n');
    throw std::invalid_argument("line " + std::to_string(line) + ": expected words other than <s>, </s> and <unk>, got " +
                                std::string(word) + "; remove it, or choose to skip such words");
}

// The words of all parts in order of first appearance; `renamed[part][local id]` is the global id of a word.
std::vector<std::string> merge_words(const std::vector<Part>& parts, std::vector<std::vector<std::uint32_t>>& renamed) {
    std::vector<std::string> words(std::begin(NGRAM_SPECIAL_WORDS), std::end(NGRAM_SPECIAL_WORDS));
    std::unordered_map<std::string_view, std::uint32_t> index;
    for (const Part& part : parts) {
        std::vector<std::uint32_t>& ids = renamed.emplace_back();
        for (std::uint32_t id = 0; id < NGRAM_SPECIAL; ++id) ids.push_back(id);
        for (const std::string_view word : part.words) {
            const auto [found, added] = index.try_emplace(word, static_cast<std::uint32_t>(words.size()));
            if (added) words.emplace_back(word);
            ids.push_back(found->second);
        }
    }
    return words;
}

}  // namespace

NgramCorpus read_ngram_corpus(std::string_view text, bool skip_special, int threads) {
    const std::vector<std::string_view> texts = split_at_lines(text, PART_BYTES);
    std::vector<Part> parts(texts.size());
    parallel_for(static_cast<std::int64_t>(parts.size()), threads, [&](std::int64_t i, int) { parts[i] = read_part(texts[i]); });
    NgramCorpus corpus;
    std::vector<std::size_t> starts{0};
    for (const Part& part : parts) {
        if (!skip_special && !part.special.empty()) reject_special(text, part.special[0]);
        corpus.sentences += part.sentences;
        corpus.skipped += part.special.size();
        starts.push_back(starts.back() + part.ids.size());
    }
    std::vector<std::vector<std::uint32_t>> renamed;
    corpus.words = merge_words(parts, renamed);
    corpus.ids.resize(starts.back());
    parallel_for(static_cast<std::int64_t>(parts.size()), threads, [&](std::int64_t i, int) {
        std::transform(parts[i].ids.begin(), parts[i].ids.end(), corpus.ids.begin() + static_cast<std::ptrdiff_t>(starts[i]),
                       [&](std::uint32_t id) { return renamed[i][id]; });
        std::vector<std::uint32_t>().swap(parts[i].ids);
    });
    return corpus;
}

NgramWords::NgramWords(std::string_view lines) {
    for_each_line(lines, [&](std::string_view line) {
        std::size_t found = 0;
        for_each_word(line, [&](std::string_view word) { found += word.size(); });
        const bool special =
            std::find(std::begin(NGRAM_SPECIAL_WORDS), std::end(NGRAM_SPECIAL_WORDS), line) != std::end(NGRAM_SPECIAL_WORDS);
        const auto id = static_cast<std::uint32_t>(size());
        if (line.empty() || found != line.size() || special || !ids_.emplace(line, id).second) {
            throw std::invalid_argument("line " + std::to_string(id - NGRAM_SPECIAL + 1) +
                                        ": expected a word that is on no other line; collect the words again");
        }
    });
}

void NgramWords::renumber(NgramCorpus& part) const {
    std::vector<std::uint32_t> ids(part.words.size());
    for (std::uint32_t id = 0; id < ids.size(); ++id) {
        ids[id] = id;
        if (id < NGRAM_SPECIAL) continue;
        const auto found = ids_.find(part.words[id]);
        if (found == ids_.end())
            throw std::invalid_argument("expected the words of the whole text, got none for " + part.words[id]);
        ids[id] = found->second;
    }
    for (std::uint32_t& id : part.ids) id = ids[id];
}

}  // namespace fewstep

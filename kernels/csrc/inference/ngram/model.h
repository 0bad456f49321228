// Queries of a back-off n-gram language model in a memory-mapped file.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "csrc/base/files.h"
#include "csrc/inference/ngram/text.h"

namespace fewstep {

inline constexpr int NGRAM_MAX_ORDER = 6;

// The state of a sentence prefix: its longest suffix that the model knows as a context. Equal states score every continuation
// equally, so a search may recombine them.
using NgramState = std::uint32_t;

// The header of a model file, little-endian. The sections follow, each padded with zeros to a multiple of 8 bytes:
//     nodes         NgramNode[nodes + 1]      n-grams of all orders but the highest; the last node is a sentinel
//     entries       NgramEntry[entries]       all n-grams
//     words         uint32[entries]           the last word of each n-gram
//     slots         uint32[ngram_slots]       n-grams of order 2 and more, by a hash of context and word; 0: empty
//     word_slots    uint32[2 counts[0] + 1]   word ids + 1, by a hash of their text; 0: empty
//     word_ends     uint64[counts[0]]         where the text of each word ends
//     text          char[word_bytes]
// n-grams are numbered by order, then by context, then by last word. Number 0 is the empty n-gram and word id is number id + 1;
// nodes = 1 + sum of all counts but the last, entries = 1 + sum of all counts, and ngram_slots = 1 + twice the sum of all counts
// but the first.
struct NgramHeader {
    std::array<char, 8> magic;
    std::uint32_t version, order;
    std::array<std::uint64_t, NGRAM_MAX_ORDER> counts;
    std::uint64_t closed;  // 1: for every n-gram w1 ... wn with n > 2 the model has w2 ... wn; else 0
    std::uint64_t word_bytes, file_bytes;
};
inline constexpr std::array<char, 8> NGRAM_MAGIC = {'F', 'S', 'N', 'G', 'R', 'A', 'M', '\n'};
inline constexpr std::uint32_t NGRAM_VERSION = 1;

struct NgramNode {
    std::uint32_t first;  // n-gram i is the context of [nodes[i].first, nodes[i + 1].first)
    float backoff;        // to base 10
};

// `shorter` is the longest proper suffix of the n-gram that is a state: a context of other n-grams, or an n-gram with a back-off.
struct NgramEntry {
    float log_prob;  // to base 10
    std::uint32_t shorter;
};

// The first slot of a look-up. Tables use open addressing with linear probing; at least one slot is empty (0).
inline std::uint64_t ngram_slot(NgramState context, std::uint32_t word, std::uint64_t slots) {
    std::uint64_t hash = (std::uint64_t{context} << 32 | word) * 0x9e3779b97f4a7c15u;
    hash = (hash ^ hash >> 32) * 0xd6e8feb86659fd93u;
    return static_cast<std::uint64_t>(static_cast<unsigned __int128>(hash) * slots >> 64);
}
std::uint64_t word_slot(std::string_view text, std::uint64_t slots);

// Return the n-gram of a context and a word, or 0.
inline std::uint32_t find_ngram(std::span<const std::uint32_t> slots, std::span<const NgramNode> nodes,
                                std::span<const std::uint32_t> words, NgramState context, std::uint32_t word) {
    const std::uint32_t first = nodes[context].first, count = nodes[context + 1].first - first;
    if (count == 0) return 0;
    for (std::uint64_t at = ngram_slot(context, word, slots.size());; at = at + 1 == slots.size() ? 0 : at + 1) {
        const std::uint32_t ngram = slots[at];
        if (ngram - first < count && words[ngram] == word) return ngram;
        if (ngram == 0) return 0;
    }
}

class NgramModel {
  public:
    // Throws FileError for an unreadable file, std::invalid_argument for a file that is truncated, altered or of another kind.
    static NgramModel map(const std::string& path);
    // The same for bytes in memory, such as those of build_ngram_file.
    static NgramModel own(std::vector<std::uint64_t> bytes);

    static constexpr double LN10 = 2.302585092994045684;
    static constexpr NgramState EMPTY = 0;  // the state without context

    // Return the state after <s>.
    NgramState begin() const { return state_after(1 + NGRAM_BEGIN); }

    // Return the natural logarithm of p(word | state), and the state after the word: the log-probability of the longest known
    // n-gram that ends in the word, plus the back-offs of the longer contexts. `word` is an id of this model. Thread-safe.
    double score(NgramState state, std::uint32_t word, NgramState& next) const {
        double backoff = 0;
        NgramState shortest = EMPTY;
        for (NgramState at = state; at != EMPTY; at = entries_[at].shorter) {
            backoff += nodes_[at].backoff;
            shortest = at;
        }
        std::uint32_t ngram = 1 + word;
        // Most queried words do not follow the last word, and so no longer context either.
        if (shortest != EMPTY && (!header_.closed || find(shortest, word))) {
            for (backoff = 0; state != EMPTY; state = entries_[state].shorter) {
                if (const std::uint32_t found = find(state, word)) {
                    ngram = found;
                    break;
                }
                backoff += nodes_[state].backoff;
            }
        }
        next = state_after(ngram);
        return (backoff + entries_[ngram].log_prob) * LN10;
    }

    int order() const { return static_cast<int>(header_.order); }
    std::span<const std::uint64_t> counts() const { return {header_.counts.data(), header_.order}; }
    std::span<const std::byte> bytes() const { return bytes_; }
    // Exclusive upper bound of states.
    std::uint32_t states() const { return static_cast<std::uint32_t>(nodes_.size() - 1); }

    std::uint32_t words() const { return static_cast<std::uint32_t>(header_.counts[0]); }
    std::string_view text(std::uint32_t word) const;
    // Return the id of a word, that of <unk> for an unknown word.
    std::uint32_t word(std::string_view text) const;

    // Call at(words, log_prob, backoff) for all n-grams of one order, by number; logarithms to base 10. The back-off of the highest
    // order is 0.
    void for_each(int order, const std::function<void(std::span<const std::uint32_t>, float, float)>& at) const;

  private:
    NgramModel(std::shared_ptr<const void> memory, std::span<const std::byte> bytes, const std::string& name);

    bool has_valid_ngrams() const;
    bool has_valid_words() const;
    // Return the n-gram of a context and a word, or 0.
    std::uint32_t find(NgramState context, std::uint32_t word) const { return find_ngram(slots_, nodes_, words_, context, word); }
    bool is_state(std::uint32_t ngram) const {
        return ngram + 1 < nodes_.size() && (nodes_[ngram].first != nodes_[ngram + 1].first || nodes_[ngram].backoff != 0);
    }
    NgramState state_after(std::uint32_t ngram) const { return is_state(ngram) ? ngram : entries_[ngram].shorter; }

    std::shared_ptr<const void> memory_;  // owns the bytes
    std::span<const std::byte> bytes_;
    NgramHeader header_;
    std::span<const NgramNode> nodes_;
    std::span<const NgramEntry> entries_;
    std::span<const std::uint32_t> words_;
    std::span<const std::uint32_t> slots_;
    std::span<const std::uint32_t> word_slots_;
    std::span<const std::uint64_t> word_ends_;
    std::string_view text_;
};

// A model over the pieces of a vocabulary, for search.
class NgramScorer {
  public:
    NgramScorer(std::shared_ptr<const NgramModel> model, std::vector<std::uint32_t> words);

    NgramState begin() const { return model_->begin(); }
    // As NgramModel::score; `piece` < size().
    double score(NgramState state, std::uint32_t piece, NgramState& next) const {
        return model_->score(state, words_[piece], next);
    }

    // The smallest unigram log-probability of a piece (natural logarithm).
    double min_log_prob() const { return min_log_prob_; }

    std::size_t size() const { return words_.size(); }
    const std::vector<std::uint32_t>& words() const { return words_; }
    const NgramModel& model() const { return *model_; }

  private:
    std::shared_ptr<const NgramModel> model_;
    std::vector<std::uint32_t> words_;  // by piece: word id of the model
    double min_log_prob_ = 0;
};

// The score of one sentence.
struct NgramSentence {
    double log_prob = 0;                   // natural
    double unknown_log_prob = 0;           // the part of unknown words
    std::uint32_t words = 0, unknown = 0;  // </s> counts as a word if it was requested
};

// Score every line of a text as one sentence. The result does not depend on `threads`.
std::vector<NgramSentence> score_ngram_lines(const NgramModel& model, std::string_view text, bool bos, bool eos, int threads);

}  // namespace fewstep

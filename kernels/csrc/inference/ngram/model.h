// Queries of an n-gram language model, from a file that is mapped and not parsed.
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

// What a sentence so far leaves to its next word: the longest end of it that the model knows as a context. Equal states score
// every continuation alike, so a search may merge them.
using NgramState = std::uint32_t;

// The file, little-endian: this header and then, each filled up with zeros to a multiple of 8 bytes,
//
//     nodes         NgramNode[nodes + 1]      n-grams of all orders but the highest; the last one only ends the one before
//     entries       NgramEntry[entries]       all n-grams
//     words         uint32[entries]           the last word of each n-gram
//     slots         uint32[ngram_slots]       n-grams of order 2 and more, by a hash of context and word; 0: none
//     word_slots    uint32[2 counts[0] + 1]   word ids + 1, by a hash of their text; 0: none
//     word_ends     uint64[counts[0]]         where the text of each word ends
//     text          char[word_bytes]
//
// n-grams are numbered order by order, within an order by context and then by last word. Number 0 is the empty one, so that a
// word is number id + 1, nodes = 1 + sum of all counts but the last, entries = 1 + sum of all counts, and ngram_slots = 1 + twice
// the sum of all counts but the first.
struct NgramHeader {
    std::array<char, 8> magic;
    std::uint32_t version, order;
    std::array<std::uint64_t, NGRAM_MAX_ORDER> counts;
    std::uint64_t closed;  // 1: the model has w2 ... wn wherever it has w1 ... wn, for all n > 2; else 0
    std::uint64_t word_bytes, file_bytes;
};
inline constexpr std::array<char, 8> NGRAM_MAGIC = {'F', 'S', 'N', 'G', 'R', 'A', 'M', '\n'};
inline constexpr std::uint32_t NGRAM_VERSION = 1;

struct NgramNode {
    std::uint32_t first;  // n-gram i is the context of [nodes[i].first, nodes[i + 1].first)
    float backoff;        // to base 10
};

// `shorter` is the longest proper end of the n-gram that is a state: a context of other n-grams, or one that has a back-off.
struct NgramEntry {
    float log_prob;  // to base 10
    std::uint32_t shorter;
};

// Where a search in a table of `slots` begins. Tables are open, a taken slot sends on to the next; at least one is empty (0).
inline std::uint64_t ngram_slot(NgramState context, std::uint32_t word, std::uint64_t slots) {
    std::uint64_t hash = (std::uint64_t{context} << 32 | word) * 0x9e3779b97f4a7c15u;
    hash = (hash ^ hash >> 32) * 0xd6e8feb86659fd93u;
    return static_cast<std::uint64_t>(static_cast<unsigned __int128>(hash) * slots >> 64);
}
std::uint64_t word_slot(std::string_view text, std::uint64_t slots);

// The n-gram of a context and a word, or 0. It is one of the context's, and has the word.
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
    // Throws FileError for what cannot be read, std::invalid_argument for a file that is cut off, altered or none of ours.
    static NgramModel map(const std::string& path);
    // The same of bytes in memory, for example build_ngram_file's.
    static NgramModel own(std::vector<std::uint64_t> bytes);

    static constexpr double LN10 = 2.302585092994045684;
    static constexpr NgramState EMPTY = 0;  // the state that knows nothing of what came before

    // The state at the begin of a sentence.
    NgramState begin() const { return state_after(1 + NGRAM_BEGIN); }

    // Natural logarithm of p(word | state), and the state after the word:
    // log p of the longest known n-gram that ends the sentence so far, and the back-offs of the longer contexts that it lacks.
    // `word` is an id of this model. Any thread may ask.
    double score(NgramState state, std::uint32_t word, NgramState& next) const {
        double backoff = 0;
        NgramState shortest = EMPTY;
        for (NgramState at = state; at != EMPTY; at = entries_[at].shorter) {
            backoff += nodes_[at].backoff;
            shortest = at;
        }
        std::uint32_t ngram = 1 + word;
        // Most words that a search asks about do not follow the last word alone, and so no longer context either.
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
    // States are below this number.
    std::uint32_t states() const { return static_cast<std::uint32_t>(nodes_.size() - 1); }

    std::uint32_t words() const { return static_cast<std::uint32_t>(header_.counts[0]); }
    std::string_view text(std::uint32_t word) const;
    // The id of a word; that of <unk> for one that the model does not have.
    std::uint32_t word(std::string_view text) const;

    // Calls at(words, log_prob, backoff) for all n-grams of one order, as they are numbered; logarithms to base 10. The back-off
    // of an n-gram of the highest order is 0.
    void for_each(int order, const std::function<void(std::span<const std::uint32_t>, float, float)>& at) const;

  private:
    NgramModel(std::shared_ptr<const void> memory, std::span<const std::byte> bytes, const std::string& name);

    bool has_valid_ngrams() const;
    bool has_valid_words() const;
    // The n-gram of a context and a word, or 0.
    std::uint32_t find(NgramState context, std::uint32_t word) const { return find_ngram(slots_, nodes_, words_, context, word); }
    bool is_state(std::uint32_t ngram) const {
        return ngram + 1 < nodes_.size() && (nodes_[ngram].first != nodes_[ngram + 1].first || nodes_[ngram].backoff != 0);
    }
    NgramState state_after(std::uint32_t ngram) const { return is_state(ngram) ? ngram : entries_[ngram].shorter; }

    std::shared_ptr<const void> memory_;  // what keeps the bytes
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

// A model over the ids of a vocabulary: what a beam search takes.
class NgramScorer {
  public:
    NgramScorer(std::shared_ptr<const NgramModel> model, std::vector<std::uint32_t> words);

    NgramState begin() const { return model_->begin(); }
    // As NgramModel::score; `piece` < size().
    double score(NgramState state, std::uint32_t piece, NgramState& next) const {
        return model_->score(state, words_[piece], next);
    }

    // log p of the rarest piece, nothing known of what came before; natural.
    double min_log_prob() const { return min_log_prob_; }

    std::size_t size() const { return words_.size(); }
    const std::vector<std::uint32_t>& words() const { return words_; }
    const NgramModel& model() const { return *model_; }

  private:
    std::shared_ptr<const NgramModel> model_;
    std::vector<std::uint32_t> words_;  // the model's word of each piece
    double min_log_prob_ = 0;
};

// How a model scores one sentence.
struct NgramSentence {
    double log_prob = 0;                   // natural
    double unknown_log_prob = 0;           // the part of words that the model does not have
    std::uint32_t words = 0, unknown = 0;  // </s> is one of the words, if it was asked for
};

// Every line of a text as one sentence. The result does not depend on `threads`.
std::vector<NgramSentence> score_ngram_lines(const NgramModel& model, std::string_view text, bool bos, bool eos, int threads);

}  // namespace fewstep

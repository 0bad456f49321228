#include "csrc/ops/ngram/estimate.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <string>
#include <utility>

#include "csrc/base/parallel.h"
#include "csrc/ops/ngram/counts.h"

namespace fewstep {

namespace {

using Ids = std::vector<std::uint32_t>;

constexpr std::uint32_t PRUNED = std::numeric_limits<std::uint32_t>::max();
constexpr std::size_t BLOCK = 4096;  // n-grams that a thread takes at a time

template <typename Body>
void parallel_blocks(std::size_t count, int threads, const Body& body) {
    parallel_for(static_cast<std::int64_t>((count + BLOCK - 1) / BLOCK), threads, [&](std::int64_t block, int) {
        const std::size_t begin = static_cast<std::size_t>(block) * BLOCK;
        for (std::size_t i = begin; i < std::min(count, begin + BLOCK); ++i) body(i);
    });
}

// By convention -99 stands for probability 0.
float log10_of(double value) { return value > 0 ? static_cast<float>(std::log10(value)) : -99.0f; }

void check(const NgramOptions& options) {
    if (options.order < 1 || options.order > NGRAM_MAX_ORDER) {
        throw std::invalid_argument("order: expected 1 to " + std::to_string(NGRAM_MAX_ORDER) + ", got " +
                                    std::to_string(options.order));
    }
    if (options.prune.size() != static_cast<std::size_t>(options.order) ||
        !std::is_sorted(options.prune.begin(), options.prune.end())) {
        throw std::invalid_argument("prune: expected a threshold for each order, none smaller than the one before");
    }
    if (options.discount_fallback) {
        for (int j = 0; j < 3; ++j) {
            const double discount = (*options.discount_fallback)[j];
            if (!(discount >= 0 && discount <= j + 1)) {
                throw std::invalid_argument("discount_fallback: expected discounts from 0 to 1, 2 and 3, got " +
                                            std::to_string(discount));
            }
        }
    }
}

std::string no_discounts_message(int order, const std::string& reason) {
    return "the discounts of order " + std::to_string(order) + " cannot be estimated: " + reason +
           "; the text is too small or artificial: set the fallback discounts (0.5, 1, 1.5) to use them where this is so";
}

NgramDiscounts estimate_discounts(const SuffixLevel& level, int order, const std::optional<std::array<double, 3>>& fallback) {
    std::array<double, 5> of{};  // n(0) to n(4)
    for (const std::uint32_t count : level.count) {
        if (count < of.size()) ++of[count];
    }
    if (level.last_occurrences) {  // lmplz counts the last n-gram by its occurrences; reproduced for equal models
        if (level.count.back() < of.size()) --of[level.count.back()];
        if (level.last_occurrences < of.size()) ++of[level.last_occurrences];
    }
    NgramDiscounts discounts;
    std::string reason;
    for (int j = 1; j <= 3 && reason.empty(); ++j) {
        if (of[j] == 0) reason = "no n-gram has the adjusted count " + std::to_string(j);
    }
    for (int j = 1; j <= 3 && reason.empty(); ++j) {
        const double discount = j - (j + 1) * of[1] / (of[1] + 2 * of[2]) * of[j + 1] / of[j];
        if (discount < 0 || discount > j) reason = "that of count " + std::to_string(j) + " is " + std::to_string(discount);
        discounts.amount[j] = discount;
    }
    if (reason.empty()) return discounts;
    if (!fallback) throw std::invalid_argument(no_discounts_message(order, reason));
    return {{0, (*fallback)[0], (*fallback)[1], (*fallback)[2]}, true};
}

std::string not_of_a_text(const char* found) { return std::string("n-gram counts: expected those of a text, got ") + found; }

// Sums over the n-grams of one context.
struct ContextSum {
    std::uint32_t total = 0;
    double left = 0;  // mass left for lower orders

    void add(const SuffixLevel& level, std::size_t ngram, const NgramDiscounts& discounts) {
        const std::uint32_t count = level.count[ngram];
        total += count;
        left += level.keeps(ngram) ? discounts(count) : count;
    }
    double weight() const { return left / total; }
};

// Estimates order by order; each order needs the results of the previous one.
class Estimator {
  public:
    Estimator(const NgramOptions& options, std::vector<SuffixLevel> levels, std::vector<NgramDiscounts> discounts)
        : options_(options), suffixes_(std::move(levels)), discounts_(std::move(discounts)), levels_(suffixes_.size()) {}

    std::vector<NgramLevel> run() {
        unigrams();
        for (std::size_t n = 1; n < suffixes_.size(); ++n) {
            extend(n);
            if (n > 1) suffixes_[n - 2] = {};
        }
        return std::move(levels_);
    }

  private:
    void make(std::size_t n, std::size_t kept) {
        levels_[n].word.resize(kept);
        levels_[n].log_prob.resize(kept);
        if (n + 1 < suffixes_.size()) levels_[n].backoff.resize(kept);
    }

    void unigrams() {
        const SuffixLevel& level = suffixes_[0];
        ContextSum sum;
        rank_.assign(level.size(), PRUNED);
        std::uint32_t kept = 0;
        for (std::size_t id = 0; id < level.size(); ++id) {
            if (id >= NGRAM_END) sum.add(level, id, discounts_[0]);
            if (level.keeps(id)) rank_[id] = kept++;
        }
        make(0, kept);
        prob_.resize(level.size());
        const double uniform = options_.interpolate_unigrams ? sum.weight() / (kept - 1) : 0;  // <s> is never predicted
        for (std::size_t id = 0; id < level.size(); ++id) {
            const std::uint32_t count = level.count[id];
            prob_[id] = (count - discounts_[0](count)) / sum.total + uniform;
            if (id == NGRAM_BEGIN) prob_[id] = 1;
            if (id == NGRAM_UNKNOWN && !options_.interpolate_unigrams) prob_[id] = sum.weight();
            if (rank_[id] == PRUNED) continue;
            levels_[0].word[rank_[id]] = rank_[id];
            levels_[0].log_prob[rank_[id]] = log10_of(prob_[id]);
        }
    }

    // Estimate the level of index n (order n + 1) from the previous one.
    void extend(std::size_t n) {
        find_contexts(n);
        const SuffixLevel& level = suffixes_[n];
        std::vector<ContextSum> sums(suffixes_[n - 1].size());
        for (std::size_t i = 0; i < level.size(); ++i) sums[context_[i]].add(level, i, discounts_[n]);
        for (std::size_t h = 0; h < sums.size(); ++h) {
            if (sums[h].total && rank_[h] != PRUNED) levels_[n - 1].backoff[rank_[h]] = log10_of(sums[h].weight());
        }
        const Ids rank_before = std::exchange(rank_, order_forward(n));
        const std::vector<double> prob_before = std::exchange(prob_, {});
        const bool last = n + 1 == suffixes_.size();
        if (!last) prob_.resize(level.size());
        const Ids& extensions = suffixes_[n - 1].extensions;
        parallel_blocks(suffixes_[n - 1].size(), options_.threads, [&](std::size_t suffix) {
            for (std::size_t i = extensions[suffix]; i < extensions[suffix + 1]; ++i) {
                if (rank_[i] == PRUNED) continue;
                const ContextSum& sum = sums[context_[i]];
                const std::uint32_t count = level.count[i];
                const double prob = (count - discounts_[n](count)) / sum.total + sum.weight() * prob_before[suffix];
                if (!last) prob_[i] = prob;
                levels_[n].word[rank_[i]] = levels_[n - 1].word[rank_before[suffix]];
                levels_[n].log_prob[rank_[i]] = log10_of(std::min(prob, 1.0));
            }
        });
    }

    // The context w1 ... wm of w1 ... w(m + 1) extends the context w2 ... wm of its suffix by w1.
    void find_contexts(std::size_t n) {
        const SuffixLevel& level = suffixes_[n];
        if (n == 1) {
            context_ = level.first_word;
            return;
        }
        const Ids before = std::exchange(context_, Ids(level.size()));
        const Ids& shorter = suffixes_[n - 2].extensions;
        const Ids& words = suffixes_[n - 1].first_word;
        const Ids& extensions = suffixes_[n - 1].extensions;
        parallel_blocks(suffixes_[n - 1].size(), options_.threads, [&](std::size_t suffix) {
            auto at = words.begin() + shorter[before[suffix]];
            const auto end = words.begin() + shorter[before[suffix] + 1];
            for (std::size_t i = extensions[suffix]; i < extensions[suffix + 1]; ++i) {
                at = std::lower_bound(at, end, level.first_word[i]);
                if (at == end || *at != level.first_word[i]) {
                    throw std::runtime_error(not_of_a_text("an n-gram without its context"));
                }
                context_[i] = static_cast<std::uint32_t>(at - words.begin());
            }
        });
    }

    // Rank the kept n-grams by context and last word. Suffix order sorts by last word, so each context receives its n-grams in
    // order.
    Ids order_forward(std::size_t n) {
        const SuffixLevel& level = suffixes_[n];
        Ids& first = levels_[n - 1].first;
        first.assign(levels_[n - 1].size() + 1, 0);
        for (std::size_t i = 0; i < level.size(); ++i) {
            if (!level.keeps(i)) continue;
            if (rank_[context_[i]] == PRUNED) throw std::runtime_error(not_of_a_text("an n-gram more often than its context"));
            ++first[rank_[context_[i]]];
        }
        std::uint32_t kept = 0;
        for (std::uint32_t& start : first) kept += std::exchange(start, kept);
        make(n, kept);
        Ids next = first, rank(level.size(), PRUNED);
        for (std::size_t i = 0; i < level.size(); ++i) {
            if (level.keeps(i)) rank[i] = next[rank_[context_[i]]]++;
        }
        return rank;
    }

    const NgramOptions& options_;
    std::vector<SuffixLevel> suffixes_;
    std::vector<NgramDiscounts> discounts_;
    std::vector<NgramLevel> levels_;
    // For the n-grams of the latest order, in suffix order:
    Ids context_;               // index of the context in the previous order
    Ids rank_;                  // index in `levels_`
    std::vector<double> prob_;  // of the last word
};

// The kept words, in the same order.
std::vector<std::string> kept_words(std::vector<std::string> words, const SuffixLevel& unigrams) {
    std::vector<std::string> kept;
    for (std::size_t id = 0; id < words.size(); ++id) {
        if (unigrams.keeps(id)) kept.push_back(std::move(words[id]));
    }
    return kept;
}

// Complete an estimate of a text with these n-grams and words.
void estimate_levels(std::vector<SuffixLevel> levels, std::vector<std::string> words, const NgramOptions& options,
                     NgramEstimate& estimate) {
    estimate.table.words = kept_words(std::move(words), levels[0]);
    for (const SuffixLevel& level : levels) {
        estimate.distinct.push_back(level.size());
        const int order = static_cast<int>(estimate.distinct.size());
        estimate.discounts.push_back(estimate_discounts(level, order, options.discount_fallback));
    }
    estimate.table.levels = Estimator(options, std::move(levels), estimate.discounts).run();
}

}  // namespace

NgramEstimate estimate_ngrams(std::string_view text, const NgramOptions& options) {
    check(options);
    NgramCorpus corpus = read_ngram_corpus(text, options.skip_special, options.threads);
    if (corpus.sentences == 0) throw std::invalid_argument("expected at least one sentence, got an empty text");
    NgramEstimate estimate;
    estimate.sentences = corpus.sentences;
    estimate.tokens = corpus.ids.size() - 2 * corpus.sentences;
    estimate.skipped = corpus.skipped;
    std::vector<SuffixLevel> levels = count_ngrams(corpus, options.order, options.prune, options.threads, options.memory);
    Ids().swap(corpus.ids);
    estimate_levels(std::move(levels), std::move(corpus.words), options, estimate);
    return estimate;
}

NgramEstimate estimate_ngrams(const NgramRuns& runs, const NgramOptions& options) {
    check(options);
    if (options.order != runs.order()) {
        throw std::invalid_argument("order: expected that of the counts, " + std::to_string(runs.order()) + ", got " +
                                    std::to_string(options.order));
    }
    NgramEstimate estimate;
    estimate.sentences = runs.sentences(), estimate.tokens = runs.tokens(), estimate.skipped = runs.skipped();
    estimate_levels(runs.levels(options.prune, options.threads, options.memory), runs.words(), options, estimate);
    return estimate;
}

}  // namespace fewstep

#include "csrc/ops/ngram/runs.h"

#include <algorithm>
#include <limits>
#include <queue>
#include <stdexcept>

#include "csrc/ops/ngram/levels.h"

namespace fewstep {

namespace {

using Records = std::vector<std::uint32_t>;

constexpr std::uint64_t BLOCK = 1024;  // records that a cursor reads at a time

// A place in a run.
class Cursor {
  public:
    Cursor(const NgramRunFile& run, std::uint64_t begin, std::uint64_t end) : run_(&run), next_(begin), end_(end) { fill(); }

    bool done() const { return at_ == block_.size(); }
    std::span<const std::uint32_t> words() const { return std::span(block_).subspan(at_, run_->header().order); }
    std::uint32_t count() const { return block_[at_ + run_->header().order]; }
    void advance() {
        at_ += run_->stride();
        if (done()) fill();
    }

  private:
    void fill() {
        const std::uint64_t records = std::min(BLOCK, end_ - next_);
        block_.resize(records * run_->stride());
        run_->read(next_, block_);
        next_ += records;
        at_ = 0;
    }

    const NgramRunFile* run_;
    std::uint64_t next_, end_;
    Records block_;
    std::size_t at_ = 0;
};

NgramHistory history_of(std::span<const std::uint32_t> words) {
    NgramHistory history;
    std::copy(words.begin(), words.end(), history.words.begin());
    const auto begin = std::find(words.begin(), words.end(), NGRAM_BEGIN);
    history.length = static_cast<int>(begin - words.begin()) + (begin != words.end());
    return history;
}

// The histories of several runs, as LevelBuilder takes them.
class MergedRuns {
  public:
    using Range = std::pair<std::uint32_t, std::uint32_t>;  // of last words

    explicit MergedRuns(const std::vector<NgramRunFile>& runs) : runs_(runs) {}

    // Ranges that halve, quarter, ... the largest run.
    std::vector<Range> ranges(std::size_t parts) const {
        const auto records = [](const NgramRunFile& run) { return run.header().records; };
        const NgramRunFile& largest =
            *std::max_element(runs_.begin(), runs_.end(), [&](const auto& a, const auto& b) { return records(a) < records(b); });
        std::vector<Range> found;
        std::uint32_t begin = 0;
        for (std::size_t part = 1; part < parts && records(largest) > 0; ++part) {
            std::uint32_t word = 0;
            largest.read(records(largest) * part / parts, std::span(&word, 1));
            if (word > begin) found.emplace_back(std::exchange(begin, word), word);
        }
        found.emplace_back(begin, runs_.front().header().words);
        return found;
    }

    template <typename At>
    void walk(const Range& range, const At& at) const {
        std::vector<Cursor> cursors;
        for (const NgramRunFile& run : runs_) cursors.emplace_back(run, run.find(range.first), run.find(range.second));
        const auto after = [&](std::size_t a, std::size_t b) {
            const auto first = cursors[a].words(), second = cursors[b].words();
            return std::lexicographical_compare(second.begin(), second.end(), first.begin(), first.end());
        };
        std::priority_queue<std::size_t, std::vector<std::size_t>, decltype(after)> heads(after);
        for (std::size_t cursor = 0; cursor < cursors.size(); ++cursor) {
            if (!cursors[cursor].done()) heads.push(cursor);
        }
        NgramHistory before;
        while (!heads.empty()) {
            const NgramHistory history = history_of(cursors[heads.top()].words());
            std::uint32_t count = 0;  // of fewer than 2^32 words
            do {
                const std::size_t cursor = heads.top();
                heads.pop();
                count += cursors[cursor].count();
                cursors[cursor].advance();
                if (!cursors[cursor].done()) heads.push(cursor);
            } while (!heads.empty() && is(history, cursors[heads.top()].words()));
            at(history, history.shared(before), count);
            before = history;
        }
    }

    PerOrder last() const {
        const std::uint32_t word = last_word();
        NgramHistory last;
        walk({word, word + 1}, [&](const NgramHistory& history, int, std::uint32_t) { last = history; });
        PerOrder found{};
        walk({word, word + 1}, [&](const NgramHistory& history, int, std::uint32_t count) {
            for (int n = 1; n <= history.shared(last); ++n) found[n] += count;
        });
        return found;
    }

  private:
    static bool is(const NgramHistory& history, std::span<const std::uint32_t> words) {
        return std::equal(words.begin(), words.end(), history.words.begin());
    }

    std::uint32_t last_word() const {
        std::uint32_t last = 0, word = 0;
        for (const NgramRunFile& run : runs_) {
            if (run.header().records == 0) continue;
            run.read(run.header().records - 1, std::span(&word, 1));
            last = std::max(last, word);
        }
        return last;
    }

    const std::vector<NgramRunFile>& runs_;
};

// Every word occurs, so that each has extensions. (The context of every n-gram is found, or missed, in estimation.)
void check_unigrams(const SuffixLevel& unigrams) {
    const auto missing = std::find(unigrams.count.begin() + NGRAM_END, unigrams.count.end(), 0u);
    if (missing == unigrams.count.end()) return;
    throw std::runtime_error("n-gram counts: expected those of all parts of a text, got none of word " +
                             std::to_string(missing - unigrams.count.begin()) + "; count all parts");
}

}  // namespace

NgramRuns::NgramRuns(std::span<const std::string> paths, std::string_view words) {
    if (paths.empty()) throw std::invalid_argument("n-gram counts: expected those of at least one part of a text");
    words_.assign(std::begin(NGRAM_SPECIAL_WORDS), std::end(NGRAM_SPECIAL_WORDS));
    for_each_line(words, [&](std::string_view line) { words_.emplace_back(line); });
    const std::uint64_t vocabulary = checksum(std::as_bytes(std::span(words)));
    for (const std::string& path : paths) {
        runs_.emplace_back(path);
        const NgramRunHeader& header = runs_.back().header();
        if (header.order != runs_.front().header().order || header.words != words_.size() || header.vocabulary != vocabulary) {
            throw std::invalid_argument(path + ": expected counts of order " + std::to_string(order()) + " of a text with these " +
                                        std::to_string(words_.size()) + " words, got order " + std::to_string(header.order) +
                                        " and other words; count all parts alike");
        }
        sentences_ += header.sentences, tokens_ += header.tokens, skipped_ += header.skipped;
        check_ngram_memory(tokens_ + 2 * sentences_, words_.size(), std::numeric_limits<std::uint64_t>::max());
    }
}

std::vector<SuffixLevel> NgramRuns::levels(const std::vector<std::uint64_t>& prune, int threads, std::uint64_t memory) const {
    if (sentences_ == 0) throw std::invalid_argument("expected at least one sentence, got an empty text");
    const MergedRuns merged(runs_);
    const LevelBuilder builder(merged, words_.size(), order(), threads);
    check_ngram_memory(tokens_ + 2 * sentences_, builder.ngrams(), memory, 0);
    std::vector<SuffixLevel> levels = builder.build(prune);
    check_unigrams(levels[0]);
    return levels;
}

}  // namespace fewstep

// Counting for candidate tables: a shard of linked sentence pairs becomes a sorted run of counts.
// A link joins slot t of the target (0-based) to position a of the source; its offset is a - t. Each link is one event of
//   lexical  (x, offset, y)   source piece x = source[a], target piece y = target[t]
//   prior    (S, t, a)        source length S
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "csrc/base/files.h"
#include "csrc/inference/candidates/count_totals.h"

namespace fewstep {

// Events encoded as integers in lexicographic order.
namespace event {
constexpr int kPieceBits = 24;

inline std::uint64_t lexical(std::uint64_t x, std::int64_t offset, std::uint64_t y, std::int64_t max_offset) {
    const std::uint64_t row = x * static_cast<std::uint64_t>(2 * max_offset + 1) + static_cast<std::uint64_t>(offset + max_offset);
    return row << kPieceBits | y;
}
inline std::uint64_t row(std::uint64_t lexical) { return lexical >> kPieceBits; }
inline std::uint32_t piece(std::uint64_t lexical) { return static_cast<std::uint32_t>(lexical & ((1u << kPieceBits) - 1)); }

inline std::uint64_t prior(std::uint64_t source_length, std::uint64_t slot, std::uint64_t position) {
    return source_length << 32 | slot << 16 | position;
}
inline std::uint32_t source_length(std::uint64_t prior) { return static_cast<std::uint32_t>(prior >> 32); }
inline std::uint32_t slot(std::uint64_t prior) { return static_cast<std::uint32_t>(prior >> 16 & 0xffff); }
inline std::uint32_t position(std::uint64_t prior) { return static_cast<std::uint32_t>(prior & 0xffff); }
}  // namespace event

// Distinct events in ascending order, with their counts.
struct EventCounts {
    std::vector<std::uint64_t> events;
    std::vector<std::uint32_t> counts;
};

struct CandidateRun {
    CountLimits limits;
    CountTotals totals;
    EventCounts lexical, prior;
};

// Sentence pairs, one after the other: pair i has the source pieces source[source_starts[i] .. source_starts[i + 1]), and target
// pieces in the same way; links[j] is the source position (0-based, within the pair) of target piece j, or -1.
struct LinkedPairs {
    std::span<const std::int32_t> source, target, links;
    std::span<const std::int64_t> source_starts, target_starts;
};

// Throws std::invalid_argument for inconsistent starts, pieces outside the vocabulary and links outside the sentence.
CandidateRun count_candidates(const LinkedPairs& pairs, const CountLimits& limits);

void write_run(const std::string& path, const CandidateRun& run);

// A memory-mapped run file. Throws std::invalid_argument for a file that is not a run, is truncated or altered.
class RunFile {
  public:
    explicit RunFile(const std::string& path);

    struct Slice {
        std::span<const std::uint64_t> events;
        std::span<const std::uint32_t> counts;
    };
    const CountLimits& limits() const { return limits_; }
    const CountTotals& totals() const { return totals_; }
    const Slice& lexical() const { return lexical_; }
    const Slice& prior() const { return prior_; }
    const std::string& path() const { return file_.path(); }

  private:
    MappedFile file_;
    CountLimits limits_;
    CountTotals totals_;
    Slice lexical_, prior_;
};

}  // namespace fewstep

// Limits and totals of the counts behind candidate tables, in the layout of run files and table files.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace fewstep {

// Linear regression of target lengths on source lengths.

inline constexpr std::int64_t MAX_WINDOW = 1 << 20;  // of lengths around a prediction

// target_length ~ slope * source_length + intercept, lengths in pieces without EOS.
struct LengthRegression {
    double slope = 1.0;
    double intercept = 0.0;

    // The predicted target length with EOS, L = round(slope * S + intercept + 1), ties to even.
    std::int64_t length(std::int64_t source_length) const {
        return static_cast<std::int64_t>(std::nearbyint(slope * static_cast<double>(source_length) + intercept + 1.0));
    }

    // Whether every prediction is a number: no line through lengths of 1 to 2^16 - 1 is steeper or higher.
    bool is_possible() const { return std::abs(slope) < 0x1p17 && std::abs(intercept) < 0x1p34; }

    // Minimum and maximum target lengths without EOS whose length with EOS is in [max(2, L - window), max(that, L + window)]; 0 and
    // 0 for an empty source.
    struct LengthRange {
        std::int64_t min, max;
    };
    LengthRange length_range(std::int64_t source_length, std::int64_t window) const {
        if (source_length < 1) return {0, 0};
        const std::int64_t predicted = length(source_length);
        const std::int64_t min = std::max<std::int64_t>(2, predicted - window);
        return {min - 1, std::max(min, predicted + window) - 1};
    }
};

// Sums over sentence pairs, as integers, so that the regression does not depend on the order of the pairs.
struct LengthSums {
    std::uint64_t pairs = 0, source = 0, target = 0, source_squared = 0, source_target = 0;

    void add(std::uint64_t source_length, std::uint64_t target_length) {
        ++pairs;
        source += source_length, target += target_length;
        source_squared += source_length * source_length, source_target += source_length * target_length;
    }

    // Whether these can be sums over at most 2^40 pairs with sides of 1 to `max_length` pieces.
    bool are_possible(std::uint64_t max_length) const {
        const auto within = [](std::uint64_t sum, std::uint64_t of, std::uint64_t factor) {
            return of <= sum && sum <= of * factor;
        };
        return pairs <= MAX_PAIRS && within(source, pairs, max_length) && within(target, pairs, max_length) &&
               within(source_squared, source, max_length) && within(source_target, source, max_length);
    }

    void add(const LengthSums& other) {
        pairs += other.pairs, source += other.source, target += other.target;
        source_squared += other.source_squared, source_target += other.source_target;
    }

    // Minimise the sum over pairs of (slope * S + intercept - T)^2. If all sources have one length, fit a line through the origin;
    // without pairs, predict equal lengths.
    LengthRegression regression() const {
        const Wide n = pairs, x = source, y = target, xx = source_squared, xy = source_target;
        const Wide determinant = n * xx - x * x;
        if (pairs == 0 || source == 0) return {};
        if (determinant == 0) return {static_cast<double>(y) / static_cast<double>(x), 0.0};
        const double divisor = static_cast<double>(determinant);
        return {static_cast<double>(n * xy - x * y) / divisor, static_cast<double>(y * xx - x * xy) / divisor};
    }

  private:
    __extension__ using Wide = __int128;
    // With lengths below 2^16, sums are below 2^56 and 2^72 (of squares; checked against 2^64), and products below 2^120.
    static constexpr std::uint64_t MAX_PAIRS = std::uint64_t{1} << 40;
};

// Limits of counting. Runs with different limits cannot be merged.
struct CountLimits {
    std::uint32_t source_size = 0, target_size = 0;  // pieces of the vocabularies, at most 2^24
    std::uint32_t max_offset = 127;                  // R: links with |a - t| > R are dropped; at most 2^15 - 1
    std::uint32_t max_length = 256;                  // pairs with a longer side are skipped; at most 2^16 - 1

    bool operator==(const CountLimits&) const = default;
};

// Numbers of pairs and links by their treatment.
struct CountTotals {
    LengthSums lengths;                     // of counted pairs
    std::uint64_t empty = 0, too_long = 0;  // skipped pairs: an empty side, a side longer than max_length
    std::uint64_t linked = 0;               // counted links
    std::uint64_t unlinked = 0;             // target pieces without a link
    std::uint64_t dropped = 0;              // links with |a - t| > max_offset

    void add(const CountTotals& other) {
        lengths.add(other.lengths);
        empty += other.empty, too_long += other.too_long;
        linked += other.linked, unlinked += other.unlinked, dropped += other.dropped;
    }

    // Whether these can be totals of pairs within the limits. If they are, no sum or product of them overflows.
    bool are_possible(const CountLimits& limits) const {
        if (!lengths.are_possible(limits.max_length)) return false;
        const std::uint64_t target = lengths.target;
        return linked <= target && unlinked <= target && dropped <= target && linked + unlinked + dropped == target;
    }
};

}  // namespace fewstep

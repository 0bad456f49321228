// Fixed-point sums, which do not depend on the order of their terms and therefore neither on threads nor on shards.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

namespace fewstep {

// A sum of signed terms in units of 2^-84, of magnitude below 2^43.
struct ExactSum {
    __int128 units = 0;

    void add(double term) { units += static_cast<__int128>(term * 0x1p84); }
    void add(const ExactSum& other) { units += other.units; }
};

constexpr double FIXED_ONE = 0x1p62;

// Sums of terms from [0, 1], each below 2^34: value = (high * 2^64 + low) / 2^62. Terms below 2^-62 count as 0.
struct ExactCounts {
    std::vector<std::uint64_t> low;
    std::vector<std::uint32_t> high;

    explicit ExactCounts(std::size_t size = 0) : low(size), high(size) {}

    void add(std::size_t cell, double term) {
        const auto units = static_cast<std::uint64_t>(static_cast<std::int64_t>(term * FIXED_ONE));
        low[cell] += units;
        high[cell] += low[cell] < units;
    }

    // Like add, while other threads add too. Integer addition is exact, so the order of the threads does not matter.
    void add_shared(std::size_t cell, double term) {
        const auto units = static_cast<std::uint64_t>(static_cast<std::int64_t>(term * FIXED_ONE));
        if (units == 0) return;
        const std::uint64_t before = std::atomic_ref<std::uint64_t>(low[cell]).fetch_add(units, std::memory_order_relaxed);
        if (before + units < before) std::atomic_ref<std::uint32_t>(high[cell]).fetch_add(1, std::memory_order_relaxed);
    }
};

using ExactUnits = unsigned __int128;

inline ExactUnits exact_units(std::uint64_t low, std::uint32_t high) { return (static_cast<ExactUnits>(high) << 64) | low; }

inline double exact_value(ExactUnits units) {
    const bool small = units >> 64 == 0;  // the same value, computed faster
    return (small ? static_cast<double>(static_cast<std::uint64_t>(units)) : static_cast<double>(units)) / FIXED_ONE;
}

}  // namespace fewstep

// Types shared by the bindings of word alignment.
#pragma once

#include <nanobind/nanobind.h>

#include <utility>

#include "bindings/arrays.h"
#include "bindings/numbers.h"
#include "csrc/ops/align/aligner.h"

namespace fewstep {

// A text owned by Python. It is frozen once an aligner uses its sentences.
struct BoundBitext {
    Bitext text;
    bool in_use = false;

    Bitext& appendable() {
        require(!in_use, "align: pairs cannot be added to a text that is in use");
        return text;
    }
};

// A text with the conditioning side first. Keeps the text alive.
struct DirectedBitext {
    nanobind::object keeper;
    const Bitext* bitext;
    bool reverse;

    DirectedBitext(nanobind::object object, bool reverse) : keeper(std::move(object)), reverse(reverse) {
        auto* held = nanobind::cast<BoundBitext*>(keeper);
        held->in_use = true;
        bitext = &held->text;
    }
    const Sentences& source() const { return reverse ? bitext->target : bitext->source; }
    const Sentences& target() const { return reverse ? bitext->source : bitext->target; }
    std::uint32_t source_size() const { return reverse ? bitext->target_size : bitext->source_size; }
    std::uint32_t target_size() const { return reverse ? bitext->source_size : bitext->target_size; }
};

inline void require_tension(double tension) {
    require_at_least("tension", tension, 0.0);
    require_finite("tension", tension);
}

struct BoundAligner {
    DirectedBitext text;
    Aligner aligner;

    BoundAligner(nanobind::object bitext, bool reverse, const AlignOptions& options, double tension, bool keep_columns, int threads)
        : text(std::move(bitext), reverse), aligner(make(text, options, tension, keep_columns, threads)) {}

  private:
    static Aligner make(const DirectedBitext& text, const AlignOptions& options, double tension, bool keep_columns, int threads) {
        require_threads(threads);
        require_tension(tension);
        const nanobind::gil_scoped_release release;
        return Aligner(text.source(), text.target(), text.source_size(), text.target_size(), options, tension, keep_columns,
                       threads);
    }
};

// Return a 128-bit sum as (high, low) 64-bit halves.
inline auto halves(const ExactSum& sum) {
    return std::pair(static_cast<std::int64_t>(sum.units >> 64), static_cast<std::uint64_t>(sum.units));
}

}  // namespace fewstep

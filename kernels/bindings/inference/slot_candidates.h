// The candidates of each slot of R rows, as arguments of searches whose network runs outside.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "bindings/arrays.h"
#include "csrc/inference/ngram/model.h"

namespace fewstep {

struct CandidateTable {
    template <typename T, int D>
    using Table = nanobind::ndarray<const T, nanobind::ndim<D>, nanobind::c_contig, nanobind::device::cpu>;

    const Table<float, 3>& scores;      // [R,z,W] log-probabilities
    const Table<std::int64_t, 3>& ids;  // [R,z,W]
    const Table<float, 2>& ends;        // [R,z] log-probabilities of EOS

    std::size_t rows() const { return ends.shape(0); }
    std::size_t slots() const { return ends.shape(1); }
    std::size_t num_candidates() const { return scores.shape(2); }

    // Throws std::invalid_argument for other shapes and for tokens that the n-gram model (may be null) does not have.
    void require_fit(std::size_t rows, std::size_t slots, const NgramScorer* ngram) const {
        require(scores.shape(0) == rows && scores.shape(1) == slots,
                "scores: expected [R,z,W] with R " + std::to_string(rows) + " and z " + std::to_string(slots));
        require(ends.shape(0) == rows && ends.shape(1) == slots, "eos: expected [R,z]");
        for (std::size_t i = 0; i < 3; ++i) require(scores.shape(i) == ids.shape(i), "ids: expected the shape of scores");
        if (ngram == nullptr) return;
        for (std::size_t i = 0; i < ids.size(); ++i)
            require(static_cast<std::uint64_t>(ids.data()[i]) < ngram->size(),
                    "ngram: expected a model over the network's vocabulary");
    }
};

}  // namespace fewstep

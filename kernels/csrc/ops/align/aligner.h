// In-memory EM over one text, one step per call.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "csrc/ops/align/fast_align.h"
#include "csrc/ops/align/model.h"

namespace fewstep {

// The links found by a pass.
struct FoundLinks {
    std::vector<std::int32_t> sources;  // by target word of the text: source position, or -1
    std::vector<double> scores;         // by pair: log-likelihood including the length; 0 for skipped pairs
    std::vector<double> margins;        // by target word: log of best over second best; may be empty
    PassSums sums;
};

class Aligner {
  public:
    Aligner(const Sentences& source, const Sentences& target, std::uint32_t source_size, std::uint32_t target_size,
            const AlignOptions& options, double tension, bool keep_columns, int threads)
        : tension(tension),
          source_(source),
          target_(target),
          text_(source, target, source_size, target_size, options, keep_columns, threads),
          t_(text_.support().cells(), 1e-9),  // uniform, so that the first pass depends only on the prior
          counts_(text_.support().cells()) {}

    PassSums expect(int threads) {
        std::fill(counts_.low.begin(), counts_.low.end(), 0);
        std::fill(counts_.high.begin(), counts_.high.end(), 0);
        return text_.expect(t_.data(), tension, counts_, threads);
    }
    void maximise(int threads) {
        const auto& support = text_.support();
        fewstep::maximise(support.row_starts.data(), support.rows(), counts_.low.data(), counts_.high.data(), text_.options(),
                          t_.data(), threads);
    }

    FoundLinks align(bool margins, int threads) const;

    const AlignedText& text() const { return text_; }
    const std::vector<double>& t() const { return t_; }
    std::vector<double>& t() { return t_; }
    const ExactCounts& counts() const { return counts_; }

    double tension;

  private:
    const Sentences& source_;
    const Sentences& target_;
    AlignedText text_;
    std::vector<double> t_;
    ExactCounts counts_;
};

// Compute links and scores with a trained model; `source` and `target` are those of the model, exchanged for a reverse model.
FoundLinks align_with(const AlignModel& model, const Sentences& source, const Sentences& target, const Dictionary& words,
                      int threads);

// Append the links of one pair as text: `source-target` by target word, `target-source` if `reverse`, separated by spaces.
void append_links(std::string& text, std::span<const std::int32_t> sources, bool reverse);

}  // namespace fewstep

// A fitted aligner: the probabilities of all cells and what else it takes to align other text with them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "csrc/ops/align/bitext.h"
#include "csrc/ops/align/fast_align.h"

namespace fewstep {

struct ModelHeader {
    AlignOptions options;
    bool reverse = false;  // source and target are exchanged
    double tension = 4.0;
    double length_ratio = 1.0;  // expected target words per source word
};

// Cells by rows as in `Support`, the columns of each row ascending, with their probabilities; words in the order of their numbers
// (none for a text of numbers). Either built in memory or mapped from a file.
class AlignModel {
  public:
    AlignModel(const ModelHeader& header, const Support& support, const double* t, const Dictionary& words);

    // The file: little-endian, versioned, mapped as it lies; bytes are a function of the content.
    void save(const char* path) const;
    static std::shared_ptr<const AlignModel> load(const char* path);

    // Upstream's format, `source TAB target TAB ln t` a line: cells with ln t >= -beam * ln(largest of the row), so all of them for
    // an infinite one, and of upstream's precision.
    void write_text(const char* path, double beam) const;
    static std::shared_ptr<const AlignModel> read_text(const char* path, const ModelHeader& header);

    const ModelHeader& header() const { return header_; }
    // t of a cell, 1e-9 for one that training never saw. `row` counts as in Support.
    double probability(std::uint64_t row, std::uint32_t column) const;
    std::int64_t rows() const { return static_cast<std::int64_t>(row_starts_.size()) - 1; }
    std::uint64_t cells() const { return columns_.size(); }
    const Dictionary& words() const { return words_; }

    std::span<const std::uint64_t> row_starts() const { return row_starts_; }
    std::span<const std::uint32_t> columns() const { return columns_; }
    std::span<const double> t() const { return t_; }

  private:
    AlignModel() = default;

    ModelHeader header_;
    Dictionary words_;
    std::span<const std::uint64_t> row_starts_;
    std::span<const std::uint32_t> columns_;
    std::span<const double> t_;
    std::shared_ptr<const void> memory_;  // what the spans look at
};

struct ForcedPair {
    std::vector<std::int32_t> links;  // source position of each target word, -1 for null
    double log_likelihood = 0;        // without the length's
};

// The best links of a pair of the model's own words (numbers of other words: Dictionary::ABSENT). Null needs a probability above 0
// to win; any other link has to be better than it and all links to its left.
ForcedPair force_align(const AlignModel& model, std::span<const std::uint32_t> source, std::span<const std::uint32_t> target);

// ln Poisson(words; 0.05 + source_words * length_ratio): how likely a target has that length.
double length_score(std::size_t target_words, std::size_t source_words, double length_ratio);

}  // namespace fewstep

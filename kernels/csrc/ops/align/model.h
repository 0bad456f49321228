// A trained aligner: the probabilities of all cells and the parameters to align other text with them.
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
    double length_ratio = 1.0;  // mean target words per source word
};

// Cells by rows as in `Support`, with the columns of each row ascending, and their probabilities; words by id (empty for a text of
// ids). Built in memory or mapped from a file.
class AlignModel {
  public:
    AlignModel(const ModelHeader& header, const Support& support, const double* t, const Dictionary& words);

    // A little-endian, versioned file with checksums that can be mapped; its bytes are a function of the content. Loading reads the
    // whole file: it throws std::invalid_argument for a file that is truncated, altered or of another kind, and FileError for one
    // that cannot be read.
    void save(const char* path) const;
    static std::shared_ptr<const AlignModel> load(const char* path);

    // The text format of the original program, `source TAB target TAB ln t` per line, with its precision: cells with ln t >= -beam
    // * ln(largest of the row), all cells for an infinite beam.
    void write_text(const char* path, double beam) const;
    static std::shared_ptr<const AlignModel> read_text(const char* path, const ModelHeader& header);

    const ModelHeader& header() const { return header_; }
    // Return t of a cell, 1e-9 for an unseen one. `row` as in Support.
    double probability(std::uint64_t row, std::uint32_t column) const;
    std::int64_t rows() const { return static_cast<std::int64_t>(row_starts_.size()) - 1; }
    std::uint64_t cells() const { return columns_.size(); }
    const Dictionary& words() const { return words_; }

    std::span<const std::uint64_t> row_starts() const { return row_starts_; }
    std::span<const std::uint32_t> columns() const { return columns_; }
    std::span<const double> t() const { return t_; }

  private:
    AlignModel() = default;
    bool has_valid_cells(std::uint64_t words) const;

    ModelHeader header_;
    Dictionary words_;
    std::span<const std::uint64_t> row_starts_;
    std::span<const std::uint32_t> columns_;
    std::span<const double> t_;
    std::shared_ptr<const void> memory_;  // owns the data of the spans
};

struct ForcedPair {
    std::vector<std::int32_t> links;  // source position of each target word, or -1
    double log_likelihood = 0;        // without the length
};

// The best links of a pair of model word ids (Dictionary::ABSENT for unknown words). Null wins if its probability is positive and
// no link is better; ties go to the leftmost link.
ForcedPair force_align(const AlignModel& model, std::span<const std::uint32_t> source, std::span<const std::uint32_t> target);

// ln Poisson(target_words; 0.05 + source_words * length_ratio), the log-probability of the target length.
double length_score(std::size_t target_words, std::size_t source_words, double length_ratio);

}  // namespace fewstep

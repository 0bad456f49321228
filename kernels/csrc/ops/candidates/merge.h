// Merge of the sorted counts of shards into candidate tables; rows are truncated after the merge.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "csrc/inference/candidates/tables.h"
#include "csrc/ops/candidates/counts.h"

namespace fewstep {

struct TableOptions {
    std::uint32_t top = 40;      // entries kept of each row
    std::uint32_t reserved = 7;  // smaller target pieces are counted but are no candidates
    double tension = 4.0;        // of the aligner's diagonal prior
    double backoff = 0.0;        // links that P(y | x) counts as in every row
    Digest vocabulary{};         // stored in the table, to detect another vocabulary
};

// Write the table of all runs to `path` and return its header. The bytes depend only on the sum of the counts. Throws
// std::invalid_argument for runs with different limits and for counts that overflow, FileError for files.
TableHeader merge_candidates(std::span<const std::string> runs, const std::string& path, const TableOptions& options);

}  // namespace fewstep

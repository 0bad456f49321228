// From the sorted counts of shards to candidate tables: a merge by event, and only then the cut of each row.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "csrc/ops/candidates/counts.h"
#include "csrc/inference/candidates/tables.h"

namespace fewstep {

struct TableOptions {
    std::uint32_t top = 40;      // entries kept of each row
    std::uint32_t reserved = 7;  // target pieces below this are counted but offered nowhere
    double tension = 4.0;        // of the aligner's diagonal prior
    double backoff = 0.0;        // links that P(y | x) counts as in every row
    Digest vocabulary{};         // kept in the table, to tell it from that of another vocabulary
};

// Writes the table of all runs to `path` and returns its header. The bytes depend on the sum of the counts alone.
// Throws std::invalid_argument for runs of different limits and for counts that no longer fit, FileError for files.
TableHeader merge_candidates(std::span<const std::string> runs, const std::string& path, const TableOptions& options);

}  // namespace fewstep

// Fuzzer of candidate tables: what is accepted is looked up in.
#include "csrc/inference/candidates/tables.h"

#include "csrc/inference/candidates/lookup.h"
#include "input.h"

using namespace fewstep;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const auto bytes = with_checksum(copy_of(data, size), offsetof(TableHeader, check));
    return refused_or_read(bytes, [](const std::string& path) {
        const CandidateTables tables(path);
        const std::uint32_t sources = tables.header().limits.source_size;
        std::vector<std::int64_t> ids;
        for (std::uint32_t piece = 0; piece < 8; ++piece)
            ids.push_back(piece % sources), ids.push_back((sources - 1 - piece % sources));
        const auto width = static_cast<std::int64_t>(ids.size());
        const std::vector<std::int64_t> lengths{width}, slots{6};
        const auto range = tables.header().regression.length_range(width, 3);
        if (range.min > range.max || range.min < 1) std::abort();
        if (tables.header().limits.target_size > 1u << 20) return;  // a look-up takes memory for the vocabulary
        std::vector<std::int64_t> found(6 * 4);
        std::vector<double> log_probs(found.size());
        lattice_candidates(tables, {ids, lengths, slots, width}, {4, 0.0, 1}, 6, found, log_probs);
        for (std::size_t i = 0; i < found.size(); ++i)
            if (found[i] >= static_cast<std::int64_t>(tables.header().limits.target_size) || log_probs[i] != log_probs[i])
                std::abort();
    });
}

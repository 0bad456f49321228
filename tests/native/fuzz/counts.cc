// Fuzzer of the counts of a shard: what is accepted is merged into tables.
#include <array>

#include "csrc/ops/candidates/merge.h"
#include "input.h"

using namespace fewstep;

namespace {

constexpr std::size_t HEADER = 144, LEXICAL = 112, PRIOR = 120, BODY = 128, CHECK = 136;

// The checksum of the sections, each of which begins at 0 as in the writer.
std::vector<std::byte> with_checksums(std::vector<std::byte> bytes) {
    if (bytes.size() < HEADER) return bytes;
    std::span<const std::byte> rest = std::span(bytes).subspan(HEADER);
    const std::uint64_t lexical = number_at(bytes, LEXICAL), prior = number_at(bytes, PRIOR);
    std::uint64_t body = 0;
    for (const auto& [count, each] : {std::pair{lexical, 8u}, {prior, 8u}, {lexical, 4u}, {prior, 4u}}) {
        if (count > rest.size() / each) return bytes;
        body = checksum(rest.first(count * each), body);
        rest = rest.subspan(count * each);
    }
    std::memcpy(bytes.data() + BODY, &body, sizeof body);
    return with_checksum(std::move(bytes), CHECK);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    return refused_or_read(with_checksums(copy_of(data, size)), [](const std::string& path) {
        const RunFile run(path);
        // Tables have a row for each source piece, which takes memory and time in proportion to the vocabulary.
        if (run.limits().source_size > 1u << 16) return;
        const InputFile out({});
        TableOptions options;
        options.backoff = run.limits().max_offset % 2;
        merge_candidates(std::array{path}, out.path(), options);
        CandidateTables(out.path()).verify();
    });
}

// Fuzzer of the n-gram counts of a part of a text: what is accepted becomes a model.
#include "csrc/ops/ngram/estimate.h"
#include "csrc/ops/ngram/table.h"
#include "input.h"

using namespace fewstep;

namespace {

constexpr std::size_t HEADER = sizeof(NgramRunHeader);

// Words of the number that the header states.
std::string words_of(const std::vector<std::byte>& bytes) {
    std::string lines;
    const std::uint64_t words = number_at(bytes, offsetof(NgramRunHeader, order)) >> 32;
    for (std::uint64_t id = NGRAM_SPECIAL; id < std::min<std::uint64_t>(words, 64); ++id) lines += std::to_string(id) + "\n";
    return lines;
}

void set(std::vector<std::byte>& bytes, std::size_t place, std::uint64_t value) {
    std::memcpy(bytes.data() + place, &value, sizeof value);
}

// The checksums of the words, of the records in blocks as the writer takes them, and of the header.
std::vector<std::byte> with_checksums(std::vector<std::byte> bytes, const std::string& words) {
    if (bytes.size() < HEADER) return bytes;
    const std::size_t stride = 4 * (1 + (number_at(bytes, offsetof(NgramRunHeader, order)) & 7));
    std::uint64_t body = 0;
    for (std::span<const std::byte> rest = std::span(bytes).subspan(HEADER); !rest.empty();) {
        const auto block = rest.first(std::min(rest.size(), NGRAM_RUN_BLOCK * stride));
        body = checksum(block, body);
        rest = rest.subspan(block.size());
    }
    set(bytes, offsetof(NgramRunHeader, vocabulary), checksum(std::as_bytes(std::span(words))));
    set(bytes, offsetof(NgramRunHeader, body), body);
    return with_checksum(std::move(bytes), offsetof(NgramRunHeader, check));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    std::vector<std::byte> bytes = copy_of(data, size);
    const std::string words = words_of(bytes);
    return refused_or_read(with_checksums(std::move(bytes), words), [&](const std::string& path) {
        const NgramRuns runs(std::array{path, path}, words);
        NgramOptions options;
        options.order = runs.order(), options.memory = 1 << 26;
        options.prune.assign(static_cast<std::size_t>(runs.order()), runs.sentences() % 3);
        options.discount_fallback = {0.5, 1.0, 1.5};
        NgramModel::own(build_ngram_file(estimate_ngrams(runs, options).table, 1));
    });
}

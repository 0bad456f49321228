// Fuzzer of alignment models: what is accepted aligns a pair, and is written as text.
#include "csrc/ops/align/model.h"
#include "input.h"

using namespace fewstep;

namespace {

constexpr std::size_t HEADER = 104, BODY = 88, CHECK = 96;

std::vector<std::byte> with_checksums(std::vector<std::byte> bytes) {
    if (bytes.size() < HEADER) return bytes;
    const std::uint64_t rows = number_at(bytes, 8), cells = number_at(bytes, 16), words = number_at(bytes, 24);
    std::span<const std::byte> rest = std::span(bytes).subspan(HEADER);
    std::uint64_t body = 0;
    for (const auto& [count, each] : {std::pair{rows + 1, 8u}, {cells, 8u}, {cells, 4u}, {words, 8u}, {number_at(bytes, 32), 1u}}) {
        if (count > rest.size() / each) return bytes;
        body = checksum(rest.first(count * each), body);
        rest = rest.subspan(std::min<std::uint64_t>(rest.size(), (count * each + 7) / 8 * 8));
    }
    std::memcpy(bytes.data() + BODY, &body, sizeof body);
    return with_checksum(std::move(bytes), CHECK);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    return refused_or_read(with_checksums(copy_of(data, size)), [](const std::string& path) {
        const auto model = AlignModel::load(path.c_str());
        const std::vector<std::uint32_t> source{0, 1, Dictionary::ABSENT}, target{2, 0};
        force_align(*model, source, target);
        for (std::uint32_t word = 0; word < model->words().size(); ++word) model->words().word(word);
        const InputFile out({});
        model->write_text(out.path().c_str(), 4.0);
        model->save(out.path().c_str());
        if (AlignModel::load(out.path().c_str())->cells() != model->cells()) std::abort();
    });
}

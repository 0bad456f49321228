#include "csrc/ops/ngram/run_file.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>
#include <stdexcept>

#include "csrc/ops/ngram/counts.h"
#include "csrc/ops/ngram/positions.h"

namespace fewstep {

namespace {

using Records = std::vector<std::uint32_t>;

FilePart checked_header(const NgramRunHeader& header) {
    return std::as_bytes(std::span(&header, 1)).first(offsetof(NgramRunHeader, check));
}

Records distinct_histories(const NgramPositions& positions, int order) {
    Records records;
    positions.walk({0, positions.size()}, [&](const NgramHistory& history, int shared, std::uint32_t count) {
        if (shared < history.length) {
            records.insert(records.end(), history.words.begin(), history.words.begin() + history.length);
            records.insert(records.end(), static_cast<std::size_t>(order - history.length), NGRAM_BEGIN);
            records.push_back(0);
        }
        records.back() += count;
    });
    return records;
}

std::uint64_t body_checksum(std::span<const std::uint32_t> records, std::size_t stride) {
    std::uint64_t sum = 0;
    while (!records.empty()) {
        const auto block = records.first(std::min<std::size_t>(records.size(), NGRAM_RUN_BLOCK * stride));
        sum = checksum(std::as_bytes(block), sum);
        records = records.subspan(block.size());
    }
    return sum;
}

// Whether words can be a history: the last may be </s>, none is <unk>, and only <s> precedes <s>.
bool is_history(std::span<const std::uint32_t> words, std::uint32_t size) {
    const auto is_word = [&](std::uint32_t id) { return id >= NGRAM_SPECIAL && id < size; };
    if (words[0] != NGRAM_END && !is_word(words[0])) return false;
    const auto begin = std::find(words.begin() + 1, words.end(), NGRAM_BEGIN);
    return std::all_of(words.begin() + 1, begin, is_word) &&
           std::all_of(begin, words.end(), [](std::uint32_t id) { return id == NGRAM_BEGIN; });
}

}  // namespace

NgramRunHeader write_ngram_run(std::string_view text, std::string_view words, int order, bool skip_special, int threads,
                               const std::string& path) {
    if (order < 1 || order > NGRAM_MAX_ORDER) {
        throw std::invalid_argument("order: expected 1 to " + std::to_string(NGRAM_MAX_ORDER) + ", got " + std::to_string(order));
    }
    NgramCorpus corpus = read_ngram_corpus(text, skip_special, threads);
    const NgramWords whole(words);
    check_ngram_memory(corpus.ids.size(), whole.size(), std::numeric_limits<std::uint64_t>::max());
    whole.renumber(corpus);
    const Records records = distinct_histories(NgramPositions(corpus.ids, corpus.sentences, whole.size(), order, threads), order);
    NgramRunHeader header;
    header.order = static_cast<std::uint32_t>(order), header.words = static_cast<std::uint32_t>(whole.size());
    header.vocabulary = checksum(std::as_bytes(std::span(words)));
    header.sentences = corpus.sentences, header.skipped = corpus.skipped;
    header.tokens = corpus.ids.size() - 2 * corpus.sentences;
    const std::size_t stride = static_cast<std::size_t>(order) + 1;
    header.records = records.size() / stride;
    header.body = body_checksum(records, stride);
    header.check = checksum(checked_header(header));
    write_file(path, std::array<FilePart, 2>{std::as_bytes(std::span(&header, 1)), std::as_bytes(std::span(records))});
    return header;
}

NgramRunFile::NgramRunFile(const std::string& path) : file_(path) {
    if (file_.size() < sizeof header_) fail("a file of " + std::to_string(file_.size()) + " bytes");
    file_.read(0, std::as_writable_bytes(std::span(&header_, 1)));
    check_header();
    check_records();
}

void NgramRunFile::fail(const std::string& what) const {
    throw std::invalid_argument(path() + ": expected the n-gram counts of a part of a text, got " + what + "; count it again");
}

void NgramRunFile::check_header() const {
    const NgramRunHeader expected;
    if (header_.magic != expected.magic) fail("another kind of file");
    if (header_.version != expected.version || header_.bytes != expected.bytes) fail("version " + std::to_string(header_.version));
    if (header_.check != checksum(checked_header(header_))) fail("an altered header");
    if (header_.order < 1 || header_.order > NGRAM_MAX_ORDER) fail("order " + std::to_string(header_.order));
    constexpr std::uint64_t most = std::numeric_limits<std::uint32_t>::max();
    if (header_.words < NGRAM_SPECIAL || header_.sentences > most || header_.tokens > most ||
        header_.tokens + 2 * header_.sentences >= most) {
        fail("impossible numbers of words");
    }
    const std::uint64_t each = sizeof(std::uint32_t) * stride(), bytes = file_.size() - sizeof header_;
    if (bytes % each != 0 || bytes / each != header_.records) fail("a truncated file");
}

void NgramRunFile::check_records() const {
    std::uint64_t sum = 0, ends = 0, counted = 0;
    Records block, before;
    for (std::uint64_t first = 0; first < header_.records; first += NGRAM_RUN_BLOCK) {
        block.resize(stride() * std::min(NGRAM_RUN_BLOCK, header_.records - first));
        read(first, block);
        sum = checksum(std::as_bytes(std::span(block)), sum);
        for (std::span<const std::uint32_t> rest = block; !rest.empty(); rest = rest.subspan(stride())) {
            const auto words = rest.first(header_.order);
            const std::uint32_t count = rest[header_.order];
            const bool ascends = std::lexicographical_compare(before.begin(), before.end(), words.begin(), words.end());
            if (!ascends || count == 0 || !is_history(words, header_.words)) fail("impossible records");
            before.assign(words.begin(), words.end());
            if (words[0] == NGRAM_END) ends += count;
            counted += count;
            if (counted > header_.sentences + header_.tokens) fail("impossible counts");
        }
    }
    if (sum != header_.body) fail("altered records");
    if (counted != header_.sentences + header_.tokens || ends != header_.sentences) fail("impossible counts");
}

void NgramRunFile::read(std::uint64_t first, std::span<std::uint32_t> values) const {
    file_.read(sizeof header_ + first * stride() * sizeof(std::uint32_t), std::as_writable_bytes(values));
}

std::uint64_t NgramRunFile::find(std::uint32_t word) const {
    std::uint64_t begin = 0, end = header_.records;
    while (begin < end) {
        const std::uint64_t middle = begin + (end - begin) / 2;
        std::uint32_t last = 0;
        read(middle, std::span(&last, 1));
        if (last < word) {
            begin = middle + 1;
        } else {
            end = middle;
        }
    }
    return begin;
}

}  // namespace fewstep

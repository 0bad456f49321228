#include "csrc/inference/candidates/tables.h"

#include <cmath>
#include <cstddef>
#include <cstring>
#include <stdexcept>

namespace fewstep {

namespace {

constexpr std::uint64_t SECTION_ALIGNMENT = 64;

template <typename T>
std::span<const T> section(std::span<const std::byte> file, TableLayout::Section place) {
    const auto bytes = file.subspan(static_cast<std::size_t>(place.offset), static_cast<std::size_t>(place.bytes));
    return {reinterpret_cast<const T*>(bytes.data()), bytes.size() / sizeof(T)};
}

// Whether the fields of a header are within the limits that counting and merging keep.
bool is_possible(const TableHeader& header) {
    const CountLimits& limits = header.limits;
    const auto vocabulary = [](std::uint32_t size) { return 1 <= size && size <= 1u << 24; };
    const auto quantity = [](double value) { return value >= 0.0 && std::isfinite(value); };
    return vocabulary(limits.source_size) && vocabulary(limits.target_size) && limits.max_offset < 1u << 15 &&
           1 <= limits.max_length && limits.max_length < 1u << 16 && header.top >= 1 &&
           header.id_bytes == (limits.target_size <= 1u << 16 ? 2u : 4u) && header.max_source <= limits.max_length &&
           quantity(header.tension) && quantity(header.backoff) && header.regression.is_possible() &&
           header.rows >= (header.backoff > 0.0 ? limits.source_size : 0u);
}

}  // namespace

TableLayout layout_of(const TableHeader& header) {
    const std::uint64_t x = header.limits.source_size, rows = header.rows, entries = header.entries;
    const std::uint64_t cells = header.cells, prior = header.prior_counts;
    const std::array<std::uint64_t, NUM_SECTIONS> bytes{4 * x,
                                                        4 * (x + 1),
                                                        4 * (rows + 1),
                                                        4 * rows,
                                                        header.id_bytes * entries,
                                                        4 * entries,
                                                        4 * (std::uint64_t{header.max_source} + 2),
                                                        4 * (cells + 1),
                                                        2 * prior,
                                                        4 * prior};
    TableLayout layout{};
    std::uint64_t end = sizeof(TableHeader);
    for (std::size_t i = 0; i < bytes.size(); ++i) {
        const std::uint64_t offset = (end + SECTION_ALIGNMENT - 1) / SECTION_ALIGNMENT * SECTION_ALIGNMENT;
        layout.sections[i] = {offset, bytes[i]};
        end = offset + bytes[i];
    }
    layout.file_bytes = end;
    return layout;
}

std::uint64_t checksum_of(const TableHeader& header) {
    return checksum(std::as_bytes(std::span(&header, 1)).first(offsetof(TableHeader, check)));
}

CandidateTables::CandidateTables(const std::string& path) : file_(path) {
    const auto fail = [&](const std::string& what) {
        throw std::invalid_argument(path + ": expected candidate tables, got " + what);
    };
    const std::span<const std::byte> file = file_.bytes();
    const std::string size = std::to_string(file.size()) + " bytes";
    if (file.size() < sizeof header_) fail("a file of " + size);
    std::memcpy(static_cast<void*>(&header_), file.data(), sizeof header_);
    if (header_.magic != TableHeader{}.magic) fail("another kind of file");
    if (header_.version != TableHeader{}.version || header_.bytes != sizeof header_) {
        fail("version " + std::to_string(header_.version) + ", where fewstep reads version " +
             std::to_string(TableHeader{}.version) + "; build them again");
    }
    if (header_.check != checksum_of(header_)) fail("a file with an altered header; build them again");
    if (!is_possible(header_)) fail("a file with an impossible header; build them again");
    const TableLayout layout = layout_of(header_);
    if (layout.file_bytes != header_.file_bytes || file.size() != header_.file_bytes) {
        fail(size + " of " + std::to_string(header_.file_bytes) + ": the file was cut off or added to; build them again");
    }
    const auto& at = layout.sections;
    view_ = {section<std::int32_t>(file, at[0]),  section<std::uint32_t>(file, at[1]), section<std::uint32_t>(file, at[2]),
             section<std::uint32_t>(file, at[3]), section<std::byte>(file, at[4]),     section<std::uint32_t>(file, at[5]),
             section<std::uint32_t>(file, at[6]), section<std::uint32_t>(file, at[7]), section<std::uint16_t>(file, at[8]),
             section<std::uint32_t>(file, at[9])};
    pieces16_ = reinterpret_cast<const std::uint16_t*>(view_.pieces.data());
    pieces32_ = reinterpret_cast<const std::uint32_t*>(view_.pieces.data());
}

void CandidateTables::verify() const {
    Sha256 hash;
    hash.update(file_.bytes().subspan(sizeof header_));
    if (hash.digest() != header_.body)
        throw std::invalid_argument(path() + ": the candidate tables were altered; build them again");
}

void CandidateTables::reject_damaged(const char* what, std::size_t index) const {
    throw std::invalid_argument(path() + ": " + what + " " + std::to_string(index) +
                                " of the candidate tables is damaged; build them again");
}

}  // namespace fewstep

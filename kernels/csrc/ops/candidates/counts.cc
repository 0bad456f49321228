#include "csrc/ops/candidates/counts.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <utility>

namespace fewstep {

namespace {

constexpr std::array<char, 8> RUN_MAGIC{'F', 'E', 'W', 'S', 'R', 'U', 'N', '\0'};
constexpr std::uint32_t RUN_VERSION = 1;

// The header of a run file, little-endian. It is followed by lexical events, prior events, lexical counts and prior counts.
struct RunHeader {
    std::array<char, 8> magic = RUN_MAGIC;
    std::uint32_t version = RUN_VERSION, bytes = sizeof(RunHeader);
    CountLimits limits;
    CountTotals totals;
    std::uint64_t lexical = 0, prior = 0;  // distinct events
    std::uint64_t body = 0;                // checksum of the following bytes
    std::uint64_t check = 0;               // checksum of the preceding fields
};
static_assert(sizeof(RunHeader) == 16 + 16 + 80 + 32);

std::string pair_name(std::size_t pair) { return "pair " + std::to_string(pair) + ": "; }

void check_starts(std::span<const std::int64_t> starts, std::size_t values, const char* side) {
    const bool ordered = !starts.empty() && starts.front() == 0 && std::is_sorted(starts.begin(), starts.end());
    if (!ordered || static_cast<std::uint64_t>(starts.back()) != values) {
        throw std::invalid_argument(std::string(side) + "_starts: expected ascending numbers from 0 to the " +
                                    std::to_string(values) + " pieces");
    }
}

void check_pieces(std::span<const std::int32_t> pieces, std::uint32_t size, std::size_t pair, const char* side) {
    for (const std::int32_t piece : pieces) {
        if (piece < 0 || static_cast<std::uint32_t>(piece) >= size) {
            throw std::invalid_argument(pair_name(pair) + side + " piece " + std::to_string(piece) +
                                        " is outside the vocabulary of " + std::to_string(size));
        }
    }
}

std::span<const std::int32_t> pair_of(std::span<const std::int32_t> values, std::span<const std::int64_t> starts,
                                      std::size_t pair) {
    return values.subspan(static_cast<std::size_t>(starts[pair]), static_cast<std::size_t>(starts[pair + 1] - starts[pair]));
}

void check_links(std::span<const std::int32_t> links, std::size_t length, std::size_t pair) {
    for (const std::int32_t link : links) {
        if (link < -1 || (link >= 0 && static_cast<std::size_t>(link) >= length)) {
            throw std::invalid_argument(pair_name(pair) + "a link leads to position " + std::to_string(link) + " of " +
                                        std::to_string(length) + " source pieces; are these links of other sentences?");
        }
    }
}

void add_events(std::span<const std::int32_t> source, std::span<const std::int32_t> target, std::span<const std::int32_t> links,
                CandidateRun& run, std::vector<std::uint64_t>& lexical, std::vector<std::uint64_t>& prior) {
    const std::int64_t max = run.limits.max_offset;
    for (std::size_t slot = 0; slot < target.size(); ++slot) {
        if (links[slot] < 0) {
            ++run.totals.unlinked;
            continue;
        }
        const auto position = static_cast<std::size_t>(links[slot]);
        const std::int64_t offset = static_cast<std::int64_t>(position) - static_cast<std::int64_t>(slot);
        if (std::abs(offset) > max) {
            ++run.totals.dropped;
            continue;
        }
        ++run.totals.linked;
        const auto x = static_cast<std::uint64_t>(source[position]), y = static_cast<std::uint64_t>(target[slot]);
        lexical.push_back(event::lexical(x, offset, y, max));
        prior.push_back(event::prior(source.size(), slot, position));
    }
}

EventCounts count_events(std::vector<std::uint64_t> events) {
    std::sort(events.begin(), events.end());
    EventCounts result;
    for (std::size_t first = 0; first < events.size();) {
        std::size_t last = first + 1;
        while (last < events.size() && events[last] == events[first]) ++last;
        if (last - first > std::numeric_limits<std::uint32_t>::max())
            throw std::length_error("more than 2^32 - 1 equal links in one shard");
        result.events.push_back(events[first]);
        result.counts.push_back(static_cast<std::uint32_t>(last - first));
        first = last;
    }
    return result;
}

std::array<FilePart, 4> body_of(std::span<const std::uint64_t> lexical, std::span<const std::uint64_t> prior,
                                std::span<const std::uint32_t> lexical_counts, std::span<const std::uint32_t> prior_counts) {
    return {part(lexical), part(prior), part(lexical_counts), part(prior_counts)};
}

template <typename T>
std::span<const T> read_values(std::span<const std::byte>& bytes, std::uint64_t count) {
    const std::span<const T> values{reinterpret_cast<const T*>(bytes.data()), static_cast<std::size_t>(count)};
    bytes = bytes.subspan(values.size_bytes());
    return values;
}

FilePart checked_header(const RunHeader& header) { return std::as_bytes(std::span(&header, 1)).first(offsetof(RunHeader, check)); }

// Whether events are ascending, each within `limits` and counted, and their counts sum to `links`.
template <typename Within>
bool are_events(const RunFile::Slice& slice, std::uint64_t links, const Within& within) {
    std::uint64_t sum = 0;
    for (std::size_t i = 0; i < slice.events.size(); ++i) {
        if (i > 0 && slice.events[i] <= slice.events[i - 1]) return false;
        if (slice.counts[i] == 0 || !within(slice.events[i])) return false;
        sum += slice.counts[i];  // fewer than 2^32 events, each counted fewer than 2^32 times
    }
    return sum == links;
}

bool is_lexical(std::uint64_t event, const CountLimits& limits) {
    const std::uint64_t rows = std::uint64_t{limits.source_size} * (2ull * limits.max_offset + 1);
    return event::row(event) < rows && event::piece(event) < limits.target_size;
}

bool is_prior(std::uint64_t event, const CountLimits& limits) {
    const std::uint32_t length = event::source_length(event), slot = event::slot(event), position = event::position(event);
    const std::int64_t offset = std::int64_t{position} - std::int64_t{slot};
    return length <= limits.max_length && slot < limits.max_length && position < length &&
           std::abs(offset) <= std::int64_t{limits.max_offset};
}

// Throws std::invalid_argument.
void check_limits(const CountLimits& limits) {
    const auto within = [](std::uint32_t value, std::uint32_t min, std::uint32_t max, const char* name) {
        if (value >= min && value <= max) return;
        throw std::invalid_argument(std::string(name) + ": expected " + std::to_string(min) + " to " + std::to_string(max) +
                                    ", got " + std::to_string(value));
    };
    within(limits.source_size, 1, 1u << event::kPieceBits, "source_size");
    within(limits.target_size, 1, 1u << event::kPieceBits, "target_size");
    within(limits.max_offset, 0, (1u << 15) - 1, "max_offset");
    within(limits.max_length, 1, (1u << 16) - 1, "max_length");
}

}  // namespace

CandidateRun count_candidates(const LinkedPairs& pairs, const CountLimits& limits) {
    check_limits(limits);
    check_starts(pairs.source_starts, pairs.source.size(), "source");
    check_starts(pairs.target_starts, pairs.target.size(), "target");
    if (pairs.source_starts.size() != pairs.target_starts.size())
        throw std::invalid_argument("expected as many sources as targets");
    if (pairs.links.size() != pairs.target.size()) throw std::invalid_argument("links: expected one for each target piece");
    CandidateRun run{.limits = limits, .totals = {}, .lexical = {}, .prior = {}};
    std::vector<std::uint64_t> lexical, prior;
    for (std::size_t pair = 0; pair + 1 < pairs.source_starts.size(); ++pair) {
        const auto source = pair_of(pairs.source, pairs.source_starts, pair);
        const auto target = pair_of(pairs.target, pairs.target_starts, pair);
        const auto links = pair_of(pairs.links, pairs.target_starts, pair);
        check_pieces(source, limits.source_size, pair, "source");
        check_pieces(target, limits.target_size, pair, "target");
        check_links(links, source.size(), pair);
        if (source.empty() || target.empty()) {
            ++run.totals.empty;
        } else if (std::max(source.size(), target.size()) > limits.max_length) {
            ++run.totals.too_long;
        } else {
            run.totals.lengths.add(source.size(), target.size());
            add_events(source, target, links, run, lexical, prior);
        }
    }
    run.lexical = count_events(std::move(lexical));
    run.prior = count_events(std::move(prior));
    return run;
}

void write_run(const std::string& path, const CandidateRun& run) {
    const auto body = body_of(run.lexical.events, run.prior.events, run.lexical.counts, run.prior.counts);
    RunHeader header;
    header.limits = run.limits, header.totals = run.totals;
    header.lexical = run.lexical.events.size(), header.prior = run.prior.events.size();
    for (const FilePart& part : body) header.body = checksum(part, header.body);
    header.check = checksum(checked_header(header));
    write_file(path, std::array<FilePart, 5>{std::as_bytes(std::span(&header, 1)), body[0], body[1], body[2], body[3]});
}

RunFile::RunFile(const std::string& path) : file_(path) {
    const auto fail = [&](const std::string& what) {
        throw std::invalid_argument(path + ": expected the counts of a shard, got " + what + "; count it again");
    };
    std::span<const std::byte> rest = file_.bytes();
    RunHeader header;
    if (rest.size() < sizeof header) fail("a file of " + std::to_string(rest.size()) + " bytes");
    std::memcpy(&header, rest.data(), sizeof header);
    rest = rest.subspan(sizeof header);
    if (header.magic != RUN_MAGIC) fail("another kind of file");
    if (header.version != RUN_VERSION || header.bytes != sizeof header) fail("version " + std::to_string(header.version));
    if (header.check != checksum(checked_header(header))) fail("an altered header");
    try {
        check_limits(header.limits);
    } catch (const std::invalid_argument& error) {
        fail(std::string("impossible limits (") + error.what() + ")");
    }
    if (!header.totals.are_possible(header.limits)) fail("impossible numbers of pairs");
    constexpr std::uint64_t each = sizeof(std::uint64_t) + sizeof(std::uint32_t);
    const std::uint64_t events = rest.size() / each;
    if (header.lexical > events || header.prior != events - header.lexical || rest.size() % each != 0)
        fail("a file that was cut off");
    if (events > std::numeric_limits<std::uint32_t>::max()) fail("more than 2^32 - 1 events");
    limits_ = header.limits, totals_ = header.totals;
    lexical_.events = read_values<std::uint64_t>(rest, header.lexical);
    prior_.events = read_values<std::uint64_t>(rest, header.prior);
    lexical_.counts = read_values<std::uint32_t>(rest, header.lexical);
    prior_.counts = read_values<std::uint32_t>(rest, header.prior);
    std::uint64_t found = 0;
    for (const FilePart& part : body_of(lexical_.events, prior_.events, lexical_.counts, prior_.counts))
        found = checksum(part, found);
    if (found != header.body) fail("altered counts");
    const bool possible = are_events(lexical_, totals_.linked, [&](std::uint64_t event) { return is_lexical(event, limits_); }) &&
                          are_events(prior_, totals_.linked, [&](std::uint64_t event) { return is_prior(event, limits_); });
    if (!possible) fail("impossible events");
}

}  // namespace fewstep

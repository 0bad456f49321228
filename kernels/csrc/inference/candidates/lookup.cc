#include "csrc/inference/candidates/lookup.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "csrc/base/parallel.h"

namespace fewstep {

namespace {

constexpr std::int64_t MAX_LENGTH_DISTANCE = 3;

using Position = std::pair<std::int64_t, double>;  // s and P(s | S, t)

// Scratch memory of a thread, reused from slot to slot.
struct Workspace {
    std::vector<double> probability;  // by target piece; zero except for `touched`
    std::vector<std::uint32_t> touched;
    std::vector<Position> positions;
    std::vector<std::pair<double, std::uint32_t>> ranked;
};

// The cell used for (S, t): the nearest one with a link to a position below S, or an empty one.
CandidateTables::Cell cell_for(const CandidateTables& tables, std::int64_t source_length, std::int64_t slot) {
    for (std::int64_t distance = 0; distance <= MAX_LENGTH_DISTANCE; ++distance) {
        for (const std::int64_t length : {source_length - distance, source_length + distance}) {
            const auto cell = tables.prior(length, slot);
            if (!cell.positions.empty() && cell.positions.front() < source_length) return cell;
        }
    }
    return {};
}

void diagonal(const CandidateTables& tables, std::int64_t source_length, std::int64_t slot, std::vector<Position>& positions) {
    const TableHeader& header = tables.header();
    const auto reach = static_cast<std::int64_t>(header.limits.max_offset);
    const std::int64_t first = std::max<std::int64_t>(0, slot - reach), last = std::min(source_length, slot + reach + 1);
    const auto length_range = static_cast<double>(std::max<std::int64_t>(1, header.regression.length(source_length) - 1));
    const double place = static_cast<double>(slot + 1) / length_range;
    double nearest = std::numeric_limits<double>::infinity();
    for (std::int64_t s = first; s < last; ++s) {
        const double distance = std::abs(static_cast<double>(s + 1) / static_cast<double>(source_length) - place);
        nearest = std::min(nearest, distance);
        positions.emplace_back(s, distance);
    }
    double sum = 0.0;
    for (auto& [s, value] : positions) sum += value = std::exp(-header.tension * (value - nearest));
    for (auto& [s, value] : positions) value /= sum;
}

// P(s | S, t) for the s with positive probability, in order.
void prior(const CandidateTables& tables, std::int64_t source_length, std::int64_t slot, std::vector<Position>& positions) {
    positions.clear();
    const auto cell = cell_for(tables, source_length, slot);
    if (cell.positions.empty()) return diagonal(tables, source_length, slot, positions);
    std::uint64_t total = 0;
    for (const std::uint32_t count : cell.counts) total += count;
    for (std::size_t i = 0; i < cell.positions.size(); ++i) {
        const std::int64_t s = cell.positions[i];
        if (s < source_length) positions.emplace_back(s, static_cast<double>(cell.counts[i]) / static_cast<double>(total));
    }
}

void add_row(const CandidateTables& tables, CandidateTables::Row row, double weight, Workspace& workspace) {
    for (std::uint32_t entry = row.first; entry < row.last; ++entry) {
        const std::uint32_t y = tables.piece(entry);
        const double added = static_cast<double>(tables.count(entry)) / static_cast<double>(row.total) * weight;
        if (!(added > 0.0)) continue;  // underflow
        if (workspace.probability[y] == 0.0) workspace.touched.push_back(y);
        workspace.probability[y] += added;
    }
}

// Add weight * P(y | x, offset): of #(x, offset) + backoff links, those of the row, and for the rest those of x at any offset.
void add_piece(const CandidateTables& tables, std::uint32_t x, std::int64_t offset, double weight, Workspace& workspace) {
    const double backoff = tables.header().backoff;
    const CandidateTables::Row row = tables.row(x, offset);
    if (backoff == 0.0) return add_row(tables, row, weight, workspace);
    const double share = static_cast<double>(row.total) / (static_cast<double>(row.total) + backoff);
    add_row(tables, row, weight * share, workspace);
    add_row(tables, tables.row(x), weight * (1.0 - share), workspace);
}

// Write the `candidates` best pieces and clear the workspace.
void write_top_k(Workspace& workspace, std::size_t candidates, std::int64_t* token_ids, double* log_probs) {
    const auto before = [](const auto& a, const auto& b) { return a.first != b.first ? a.first > b.first : a.second < b.second; };
    workspace.ranked.clear();
    for (const std::uint32_t y : workspace.touched) {
        workspace.ranked.emplace_back(workspace.probability[y], y);
        workspace.probability[y] = 0.0;
    }
    workspace.touched.clear();
    const std::size_t taken = std::min(candidates, workspace.ranked.size());
    const auto end = workspace.ranked.begin() + static_cast<std::ptrdiff_t>(taken);
    if (end != workspace.ranked.end()) std::nth_element(workspace.ranked.begin(), end, workspace.ranked.end(), before);
    std::sort(workspace.ranked.begin(), end, before);
    for (std::size_t k = 0; k < taken; ++k) {
        token_ids[k] = workspace.ranked[k].second;
        log_probs[k] = std::min(0.0, std::log(workspace.ranked[k].first));
    }
}

std::string sentence_name(std::int64_t sentence) { return "sentence " + std::to_string(sentence) + ": "; }

void check(const SourcePieces& sources, const TableHeader& header, std::int64_t num_slots) {
    for (std::size_t b = 0; b < sources.lengths.size(); ++b) {
        const auto sentence = static_cast<std::int64_t>(b);
        if (sources.lengths[b] < 0 || sources.lengths[b] > sources.width) {
            throw std::invalid_argument(sentence_name(sentence) + "expected a length of 0 to " + std::to_string(sources.width) +
                                        ", got " + std::to_string(sources.lengths[b]));
        }
        if (sources.slots[b] < 0 || sources.slots[b] > num_slots) {
            throw std::invalid_argument(sentence_name(sentence) + "expected 0 to " + std::to_string(num_slots) + " slots, got " +
                                        std::to_string(sources.slots[b]));
        }
        for (std::int64_t s = 0; s < sources.lengths[b]; ++s) {
            const std::int64_t x = sources.ids[static_cast<std::size_t>(sentence * sources.width + s)];
            if (x < 0 || x >= static_cast<std::int64_t>(header.limits.source_size)) {
                throw std::invalid_argument(sentence_name(sentence) + "source piece " + std::to_string(x) +
                                            " is outside the tables' vocabulary of " + std::to_string(header.limits.source_size));
            }
        }
    }
}

}  // namespace

void lattice_candidates(const CandidateTables& tables, const SourcePieces& sources, const LookupOptions& options,
                        std::int64_t num_slots, std::span<std::int64_t> token_ids, std::span<double> log_probs) {
    const TableHeader& header = tables.header();
    if (options.candidates < 1) throw std::invalid_argument("candidates: expected at least 1");
    if (options.threads < 1) throw std::invalid_argument("threads: expected at least 1");
    check(sources, header, num_slots);
    const auto sentences = static_cast<std::int64_t>(sources.lengths.size());
    std::fill(token_ids.begin(), token_ids.end(), -1);
    std::fill(log_probs.begin(), log_probs.end(), -std::numeric_limits<double>::infinity());
    std::vector<Workspace> workspaces(
        static_cast<std::size_t>(std::min<std::int64_t>(options.threads, std::max<std::int64_t>(1, sentences))));
    parallel_for(sentences, static_cast<int>(workspaces.size()), [&](std::int64_t b, int thread) {
        Workspace& workspace = workspaces[static_cast<std::size_t>(thread)];
        workspace.probability.resize(header.limits.target_size, 0.0);
        const std::int64_t* ids = sources.ids.data() + b * sources.width;
        const std::int64_t length = sources.lengths[static_cast<std::size_t>(b)];
        for (std::int64_t slot = 0; slot < sources.slots[static_cast<std::size_t>(b)]; ++slot) {
            prior(tables, length, slot, workspace.positions);
            for (const auto& [s, weight] : workspace.positions) {
                if (weight < options.min_prior) continue;
                add_piece(tables, static_cast<std::uint32_t>(ids[s]), s - slot, weight, workspace);
            }
            const std::int64_t at = (b * num_slots + slot) * options.candidates;
            write_top_k(workspace, static_cast<std::size_t>(options.candidates), token_ids.data() + at, log_probs.data() + at);
        }
    });
}

}  // namespace fewstep

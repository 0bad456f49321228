#include "csrc/ops/dag/paths.h"

#include <cmath>
#include <limits>
#include <vector>

#include "csrc/base/parallel.h"
#include "csrc/base/simd_f64.h"
#include "csrc/ops/dag/log_space.h"
#include "csrc/ops/dag/scaled_space.h"

namespace fewstep {

namespace {

constexpr double MINUS_INFINITY = -std::numeric_limits<double>::infinity();

constexpr double TOO_HIGH = std::numeric_limits<double>::infinity();

// Copy the values from `from` on to a band among the cells `around` of a row, and return the maximum, or NaN if a value is NaN or
// plus infinity.
template <typename Value>
double copy_band(const Value* from, Band band, Band around, double* row) {
    typedef Value Source __attribute__((vector_size(F64_LANES * sizeof(Value)), aligned(alignof(Value)), may_alias));
    std::fill(row + around.first, row + band.first, MINUS_INFINITY);
    std::fill(row + band.last + 1, row + around.last + 1, MINUS_INFINITY);
    F64Vector highest = F64Vector{} + MINUS_INFINITY;
    I64Vector valid = ~I64Vector{};
    std::size_t j = band.first;
    for (; j + F64_LANES <= band.last + 1; j += F64_LANES, from += F64_LANES) {
        const F64Vector value = __builtin_convertvector(*reinterpret_cast<const Source*>(from), F64Vector);
        valid &= value < TOO_HIGH;
        blend(highest, value > highest, value, highest);
        vector_at(row + j) = value;
    }
    double found = horizontal_max(highest);
    bool rest = true;
    for (; j <= band.last; ++j) {
        row[j] = *from++;
        rest &= row[j] < TOO_HIGH;
        found = std::max(found, row[j]);
    }
    for (std::size_t lane = 0; lane < F64_LANES; ++lane) rest &= valid[lane] != 0;
    return rest ? found : std::numeric_limits<double>::quiet_NaN();
}

double read(const Scores& scores, Band band, Band around, double* row) {
    return scores.floats ? copy_band(scores.floats, band, around, row) : copy_band(scores.doubles, band, around, row);
}

void clear(const Results& results, std::size_t count) {
    if (results.floats)
        std::fill(results.floats, results.floats + count, 0.0F);
    else
        std::fill(results.doubles, results.doubles + count, 0.0);
}

// Scratch memory of a thread.
struct Workspace {
    DagScaledSpace scaled_space;
    DagLogSpace log_space;
};

double likelihood(const DagSentence& sentence, bool log_space, Workspace& workspaces, const DagPosteriors* posteriors) {
    if (!sentence.has_path()) return MINUS_INFINITY;
    if (!log_space)
        if (const auto found = workspaces.scaled_space.log_likelihood(sentence, posteriors)) return *found;
    return workspaces.log_space.log_likelihood(sentence, posteriors);
}

}  // namespace

double DagSentence::read_tokens(std::size_t token, double* row, std::size_t width) const {
    const Band columns = emitters(token);
    return read(token_scores.at(token * stride + columns.first), columns, {0, width - 1}, row);
}

double DagSentence::read_transitions(std::size_t vertex, double* row) const {
    const Band columns = successors(vertex);
    return read(transition_scores.at(cell(vertex, columns.first)), columns, lanes(vertex), row);
}

void dag_log_likelihood(const DagBatch& batch, bool log_space, int threads, const Results& log_likelihoods) {
    std::vector<Workspace> workspaces(static_cast<std::size_t>(threads));
    parallel_for(static_cast<std::int64_t>(batch.sentences), threads, [&](std::int64_t item, int thread) {
        const auto b = static_cast<std::size_t>(item);
        set(log_likelihoods, b,
            likelihood(DagSentence(batch, b), log_space, workspaces[static_cast<std::size_t>(thread)], nullptr));
    });
}

void dag_posteriors(const DagBatch& batch, bool log_space, int threads, const Results& log_likelihoods,
                    const DagPosteriors& posteriors) {
    std::vector<Workspace> workspaces(static_cast<std::size_t>(threads));
    const std::size_t token_cells = batch.max_tokens * batch.max_vertices, transition_cells = batch.max_vertices * batch.band;
    parallel_for(static_cast<std::int64_t>(batch.sentences), threads, [&](std::int64_t item, int thread) {
        const auto b = static_cast<std::size_t>(item);
        const DagPosteriors own{posteriors.tokens.at(b * token_cells), posteriors.transitions.at(b * transition_cells)};
        clear(own.tokens, token_cells);
        clear(own.transitions, transition_cells);
        set(log_likelihoods, b, likelihood(DagSentence(batch, b), log_space, workspaces[static_cast<std::size_t>(thread)], &own));
    });
}

}  // namespace fewstep

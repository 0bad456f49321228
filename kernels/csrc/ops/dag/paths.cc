#include "csrc/ops/dag/paths.h"

#include <cmath>
#include <limits>
#include <vector>

#include "csrc/base/simd_f64.h"
#include "csrc/base/parallel.h"
#include "csrc/ops/dag/log_space.h"
#include "csrc/ops/dag/scaled_space.h"

namespace fewstep {

namespace {

constexpr double NONE = -std::numeric_limits<double>::infinity();

constexpr double TOO_HIGH = std::numeric_limits<double>::infinity();

// Copies [band] of a row. Returns the highest; NaN if one is NaN or plus infinity.
template <typename Value>
double copy_band(const Value* from, Band band, double* row, std::size_t width) {
    typedef Value Given __attribute__((vector_size(LANES * sizeof(Value)), aligned(alignof(Value)), may_alias));
    std::fill(row, row + band.first, NONE);
    std::fill(row + band.last + 1, row + width, NONE);
    Lanes most = Lanes{} + NONE;
    Words fine = ~Words{};
    std::size_t j = band.first;
    for (; j + LANES <= band.last + 1; j += LANES) {
        const Lanes value = __builtin_convertvector(*reinterpret_cast<const Given*>(from + j), Lanes);
        fine &= value < TOO_HIGH;
        choose(most, value > most, value, most);
        lanes(row + j) = value;
    }
    double found = highest(most);
    bool rest = true;
    for (; j <= band.last; ++j) {
        row[j] = from[j];
        rest &= row[j] < TOO_HIGH;
        found = std::max(found, row[j]);
    }
    for (std::size_t lane = 0; lane < LANES; ++lane) rest &= fine[lane] != 0;
    return rest ? found : std::numeric_limits<double>::quiet_NaN();
}

double read(const Scores& scores, std::size_t start, Band band, double* row, std::size_t width) {
    return scores.narrow ? copy_band(scores.narrow + start, band, row, width) : copy_band(scores.wide + start, band, row, width);
}

void clear(const Results& results, std::size_t count) {
    if (results.narrow)
        std::fill(results.narrow, results.narrow + count, 0.0F);
    else
        std::fill(results.wide, results.wide + count, 0.0);
}

// A thread's working memory.
struct Workers {
    DagScaled scaled;
    DagCareful careful;
};

double likelihood(const DagSentence& sentence, bool careful, Workers& workers, const DagPosteriors* posteriors) {
    if (!sentence.possible()) return NONE;
    if (!careful)
        if (const auto found = workers.scaled.log_likelihood(sentence, posteriors)) return *found;
    return workers.careful.log_likelihood(sentence, posteriors);
}

}  // namespace

double DagSentence::read_tokens(std::size_t token, double* row, std::size_t width) const {
    return read(token_scores, token * stride, emitters(token), row, width);
}

double DagSentence::read_transitions(std::size_t vertex, double* row, std::size_t width) const {
    return read(transition_scores, vertex * stride, successors(vertex), row, width);
}

void dag_log_likelihood(const DagBatch& batch, bool careful, int threads, const Results& log_likelihoods) {
    std::vector<Workers> workers(static_cast<std::size_t>(threads));
    parallel_for(static_cast<std::int64_t>(batch.sentences), threads, [&](std::int64_t item, int thread) {
        const auto b = static_cast<std::size_t>(item);
        set(log_likelihoods, b, likelihood(DagSentence(batch, b), careful, workers[static_cast<std::size_t>(thread)], nullptr));
    });
}

void dag_posteriors(const DagBatch& batch, bool careful, int threads, const Results& log_likelihoods,
                    const DagPosteriors& posteriors) {
    std::vector<Workers> workers(static_cast<std::size_t>(threads));
    const std::size_t token_cells = batch.max_tokens * batch.max_vertices,
                      transition_cells = batch.max_vertices * batch.max_vertices;
    parallel_for(static_cast<std::int64_t>(batch.sentences), threads, [&](std::int64_t item, int thread) {
        const auto b = static_cast<std::size_t>(item);
        const DagPosteriors own{posteriors.tokens.at(b * token_cells), posteriors.transitions.at(b * transition_cells)};
        clear(own.tokens, token_cells);
        clear(own.transitions, transition_cells);
        set(log_likelihoods, b, likelihood(DagSentence(batch, b), careful, workers[static_cast<std::size_t>(thread)], &own));
    });
}

}  // namespace fewstep

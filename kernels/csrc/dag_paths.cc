#include "csrc/dag_paths.h"

#include <cmath>
#include <limits>
#include <vector>

#include "csrc/dag_careful.h"
#include "csrc/dag_scaled.h"
#include "csrc/parallel.h"

namespace fewstep {

namespace {

constexpr double NONE = -std::numeric_limits<double>::infinity();

// Copies [band] of a row and says whether all of it is below plus infinity.
template <typename Value>
bool copy_band(const Value* from, Band band, double* row, std::size_t width) {
    std::fill(row, row + band.first, NONE);
    bool fine = true;
    for (std::size_t j = band.first; j <= band.last; ++j) {
        row[j] = from[j];
        fine &= row[j] < std::numeric_limits<double>::infinity();
    }
    std::fill(row + band.last + 1, row + width, NONE);
    return fine;
}

bool read(const Scores& scores, std::size_t start, Band band, double* row, std::size_t width) {
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

double likelihood(const DagSentence& sentence, bool careful, Workers& workers) {
    if (!sentence.possible()) return NONE;
    if (!careful)
        if (const auto found = workers.scaled.log_likelihood(sentence)) return *found;
    return workers.careful.log_likelihood(sentence);
}

}  // namespace

bool DagSentence::read_tokens(std::size_t token, double* row, std::size_t width) const {
    return read(token_scores, token * stride, emitters(token), row, width);
}

bool DagSentence::read_transitions(std::size_t vertex, double* row, std::size_t width) const {
    return read(transition_scores, vertex * stride, successors(vertex), row, width);
}

void dag_log_likelihood(const DagBatch& batch, bool careful, int threads, const Results& log_likelihoods) {
    std::vector<Workers> workers(static_cast<std::size_t>(threads));
    parallel_for(static_cast<std::int64_t>(batch.sentences), threads, [&](std::int64_t item, int thread) {
        const auto b = static_cast<std::size_t>(item);
        set(log_likelihoods, b, likelihood(DagSentence(batch, b), careful, workers[static_cast<std::size_t>(thread)]));
    });
}

void dag_gradients(const DagBatch& batch, const Scores& upstream, bool careful, int threads, const Results& token_gradients,
                   const Results& transition_gradients) {
    std::vector<Workers> workers(static_cast<std::size_t>(threads));
    const std::size_t token_cells = batch.max_tokens * batch.max_vertices, transition_cells = batch.max_vertices * batch.max_vertices;
    parallel_for(static_cast<std::int64_t>(batch.sentences), threads, [&](std::int64_t item, int thread) {
        const auto b = static_cast<std::size_t>(item);
        Workers& own = workers[static_cast<std::size_t>(thread)];
        const DagSentence sentence(batch, b);
        const DagGradients gradients{get(upstream, b), token_gradients.at(b * token_cells), transition_gradients.at(b * transition_cells)};
        clear(gradients.tokens, token_cells);
        clear(gradients.transitions, transition_cells);
        if (!sentence.possible() || (!careful && own.scaled.gradients(sentence, gradients))) return;
        own.careful.gradients(sentence, gradients);
    });
}

}  // namespace fewstep

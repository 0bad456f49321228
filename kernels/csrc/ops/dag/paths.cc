#include "csrc/ops/dag/paths.h"

#include <cmath>
#include <limits>
#include <vector>

#include "csrc/base/parallel.h"
#include "csrc/base/simd_f64.h"
#include "csrc/ops/dag/edges.h"

namespace fewstep {

namespace {

constexpr double MINUS_INFINITY = -std::numeric_limits<double>::infinity();

class Aligner {
  public:
    // Write the vertices of the best path, if there is one, and return its score.
    double align(const DagSentence& sentence, std::int64_t* vertices);

  private:
    bool load(const DagSentence& sentence);
    void step(const DagSentence& sentence, std::size_t token);

    std::size_t width_ = 0;
    DagEdges transitions_;                    // minus infinity where no path goes
    std::vector<double> scores_, next_;       // [width] scores of the best path to each vertex
    std::vector<double> tokens_;              // [M,width]
    std::vector<std::int64_t> predecessors_;  // [M,width]
};

bool Aligner::load(const DagSentence& sentence) {
    width_ = round_up(sentence.vertices);
    transitions_.reset(sentence, MINUS_INFINITY);
    tokens_.assign(sentence.tokens * width_, MINUS_INFINITY);
    predecessors_.resize(sentence.tokens * width_);
    scores_.assign(width_, MINUS_INFINITY);
    next_.assign(width_, MINUS_INFINITY);
    bool valid = true;
    for (std::size_t t = 0; t < sentence.tokens; ++t)
        valid &= !std::isnan(sentence.read_tokens(t, tokens_.data() + t * width_, width_));
    for (std::size_t i = 0; i + 1 < sentence.vertices; ++i) valid &= !std::isnan(sentence.read_transitions(i, transitions_[i]));
    return valid;
}

void Aligner::step(const DagSentence& sentence, std::size_t token) {
    const Band before = sentence.emitters(token - 1), band = sentence.emitters(token);
    std::fill(next_.begin(), next_.end(), MINUS_INFINITY);
    for (std::size_t j = round_down(band.first); j <= band.last; j += F64_LANES) {
        F64Vector best = F64Vector{} + MINUS_INFINITY;
        I64Vector from{};
        const Band rows = sentence.predecessors(before, j, j + F64_LANES - 1);
        for (std::size_t i = rows.first; i <= rows.last; ++i) {
            const F64Vector score = scores_[i] + vector_at(transitions_[i] + j);
            const I64Vector better = score > best;
            blend(best, better, score, best);
            from = (better & static_cast<std::int64_t>(i)) | (~better & from);
        }
        vector_at(next_.data() + j) = best + vector_at(tokens_.data() + token * width_ + j);
        *reinterpret_cast<I64Vector*>(predecessors_.data() + token * width_ + j) = from;
    }
    scores_.swap(next_);
}

double Aligner::align(const DagSentence& sentence, std::int64_t* vertices) {
    if (!sentence.has_path()) return MINUS_INFINITY;
    if (!load(sentence)) return std::numeric_limits<double>::quiet_NaN();
    scores_[0] = tokens_[0];
    for (std::size_t t = 1; t < sentence.tokens; ++t) step(sentence, t);
    const double score = scores_[sentence.vertices - 1];
    if (!(score > MINUS_INFINITY)) return score;
    std::int64_t vertex = static_cast<std::int64_t>(sentence.vertices) - 1;
    for (std::size_t t = sentence.tokens; t-- > 0; vertex = predecessors_[t * width_ + static_cast<std::size_t>(vertex)])
        vertices[t] = vertex;
    return score;
}

}  // namespace

void dag_best_alignment(const DagBatch& batch, int threads, std::int64_t* vertices, const Results& scores) {
    std::fill(vertices, vertices + batch.sentences * batch.max_tokens, -1);
    std::vector<Aligner> aligners(static_cast<std::size_t>(threads));
    parallel_for(static_cast<std::int64_t>(batch.sentences), threads, [&](std::int64_t item, int thread) {
        const auto b = static_cast<std::size_t>(item);
        set(scores, b, aligners[static_cast<std::size_t>(thread)].align(DagSentence(batch, b), vertices + b * batch.max_tokens));
    });
}

namespace {

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

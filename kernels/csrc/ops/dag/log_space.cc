#include <algorithm>
#include <cmath>
#include <limits>

#include "csrc/base/simd_f64.h"
#include "csrc/ops/dag/edges.h"

namespace fewstep {

namespace {

constexpr double MINUS_INFINITY = -std::numeric_limits<double>::infinity();

// 0 for minus infinity, so that minus infinity minus it is defined.
double finite(double x) { return x > MINUS_INFINITY ? x : 0.0; }

// total += exp(x), where rounding may have made x slightly positive.
void add_exponentials(const F64Vector& exponents, F64Vector& total) {
    F64Vector x;
    blend(x, exponents < 0.0, exponents, F64Vector{});
    exp_in_place(x);
    total += x;
}

// y[0, 8) = log sum_i exp(a[i] + x[i, column + 0..8))
void log_sum_rows(const double* a, Band rows, const DagEdges& x, std::size_t column, double* y) {
    F64Vector highest = F64Vector{} + MINUS_INFINITY, total{};
    for (std::size_t i = rows.first; i <= rows.last; ++i) {
        const F64Vector value = a[i] + vector_at(x[i] + column);
        blend(highest, value > highest, value, highest);
    }
    blend(highest, highest > MINUS_INFINITY, highest, F64Vector{});
    for (std::size_t i = rows.first; i <= rows.last; ++i) add_exponentials(a[i] + vector_at(x[i] + column) - highest, total);
    for (std::size_t lane = 0; lane < F64_LANES; ++lane) y[lane] = std::log(total[lane]) + highest[lane];
}

// log sum_j exp(x[j] + b[j])
double log_sum_columns(const double* x, Band columns, const double* b) {
    F64Vector highest = F64Vector{} + MINUS_INFINITY, total{};
    for (std::size_t j = round_down(columns.first); j <= columns.last; j += F64_LANES) {
        const F64Vector value = vector_at(x + j) + vector_at(b + j);
        blend(highest, value > highest, value, highest);
    }
    const double shift = finite(horizontal_max(highest));
    for (std::size_t j = round_down(columns.first); j <= columns.last; j += F64_LANES)
        add_exponentials(vector_at(x + j) + vector_at(b + j) - shift, total);
    return std::log(horizontal_sum(total)) + shift;
}

}  // namespace

// Return false if there is a NaN or plus infinity.
bool DagLogSpace::load(const DagSentence& sentence) {
    width_ = round_up(sentence.vertices);
    transitions_.reset(sentence, MINUS_INFINITY);
    for (auto* table : {&tokens_, &alpha_, &beta_}) table->assign(sentence.tokens * width_, MINUS_INFINITY);
    bool valid = true;
    for (std::size_t t = 0; t < sentence.tokens; ++t) valid &= !std::isnan(sentence.read_tokens(t, row(tokens_, t), width_));
    for (std::size_t i = 0; i + 1 < sentence.vertices; ++i) valid &= !std::isnan(sentence.read_transitions(i, transitions_[i]));
    return valid;
}

double DagLogSpace::forward(const DagSentence& sentence) {
    row(alpha_, 0)[0] = row(tokens_, 0)[0];
    for (std::size_t t = 1; t < sentence.tokens; ++t) {
        const Band before = sentence.emitters(t - 1), band = sentence.emitters(t);
        double *const alpha = row(alpha_, t), *const tokens = row(tokens_, t);
        for (std::size_t j = round_down(band.first); j <= band.last; j += F64_LANES) {
            const Band rows = sentence.predecessors(before, j, j + F64_LANES - 1);
            log_sum_rows(row(alpha_, t - 1), rows, transitions_, j, alpha + j);
            vector_at(alpha + j) += vector_at(tokens + j);
        }
    }
    return row(alpha_, sentence.tokens - 1)[sentence.vertices - 1];
}

void DagLogSpace::backward(const DagSentence& sentence, const DagPosteriors& posteriors) {
    const std::size_t end = sentence.tokens - 1, last = sentence.vertices - 1;
    const double log_z = row(alpha_, end)[last];
    row(beta_, end)[last] = row(tokens_, end)[last];
    set(posteriors.tokens, end * sentence.stride + last, 1.0);
    for (std::size_t t = end; t-- > 0;) {
        const Band band = sentence.emitters(t), after = sentence.emitters(t + 1);
        double *const alpha = row(alpha_, t), *const beta = row(beta_, t), *const tokens = row(tokens_, t);
        for (std::size_t i = band.first; i <= band.last; ++i) {
            const Band columns{std::max(after.first, i + 1), std::min(after.last, i + sentence.longest_transition)};
            const double rest = log_sum_columns(transitions_[i], columns, row(beta_, t + 1));
            beta[i] = tokens[i] + rest;
            set(posteriors.tokens, t * sentence.stride + i, std::exp(std::min(alpha[i] + rest - log_z, 0.0)));
        }
    }
}

void DagLogSpace::write_transitions(const DagSentence& sentence, const DagPosteriors& posteriors) const {
    const double log_z = row(alpha_, sentence.tokens - 1)[sentence.vertices - 1];
    for (std::size_t i = 0; i + 1 < sentence.vertices; ++i) {
        const Band tokens = sentence.emitted(i), columns = sentence.successors(i);
        const std::size_t past = std::min(tokens.last + 1, sentence.tokens - 1);
        for (std::size_t j = round_down(columns.first); j <= columns.last; j += F64_LANES) {
            F64Vector total{};
            for (std::size_t t = tokens.first; t < past; ++t)
                add_exponentials(row(alpha_, t)[i] - log_z + vector_at(transitions_[i] + j) + vector_at(row(beta_, t + 1) + j),
                                 total);
            for (std::size_t lane = 0; lane < F64_LANES; ++lane)
                if (j + lane >= columns.first && j + lane <= columns.last)
                    set(posteriors.transitions, sentence.cell(i, j + lane), total[lane]);
        }
    }
}

double DagLogSpace::log_likelihood(const DagSentence& sentence, const DagPosteriors* posteriors) {
    if (!load(sentence)) return std::numeric_limits<double>::quiet_NaN();
    const double found = forward(sentence);
    if (posteriors && found > MINUS_INFINITY) {
        backward(sentence, *posteriors);
        write_transitions(sentence, *posteriors);
    }
    return found;
}

}  // namespace fewstep

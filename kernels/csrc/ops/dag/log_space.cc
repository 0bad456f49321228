#include "csrc/ops/dag/log_space.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "csrc/base/simd_f64.h"

namespace fewstep {

namespace {

constexpr double NONE = -std::numeric_limits<double>::infinity();

// 0 for minus infinity, so that it can be taken from minus infinity.
double finite(double x) { return x > NONE ? x : 0.0; }

// total += exp(x), where rounding may have left x a little above 0.
void add_exponentials(const Lanes& exponents, Lanes& total) {
    Lanes x;
    choose(x, exponents < 0.0, exponents, Lanes{});
    exponentials(x);
    total += x;
}

// y[0, 8) = log sum over i of exp(a[i] + x[i, 0..8)), rows `width` apart.
void log_sum_rows(const double* a, Band rows, const double* x, std::size_t width, double* y) {
    Lanes most = Lanes{} + NONE, total{};
    for (std::size_t i = rows.first; i <= rows.last; ++i) {
        const Lanes value = a[i] + lanes(x + i * width);
        choose(most, value > most, value, most);
    }
    choose(most, most > NONE, most, Lanes{});
    for (std::size_t i = rows.first; i <= rows.last; ++i) add_exponentials(a[i] + lanes(x + i * width) - most, total);
    for (std::size_t lane = 0; lane < LANES; ++lane) y[lane] = std::log(total[lane]) + most[lane];
}

// log sum over j of exp(x[j] + b[j])
double log_sum_columns(const double* x, Band columns, const double* b) {
    Lanes most = Lanes{} + NONE, total{};
    for (std::size_t j = down(columns.first); j <= columns.last; j += LANES) {
        const Lanes value = lanes(x + j) + lanes(b + j);
        choose(most, value > most, value, most);
    }
    const double shift = finite(highest(most));
    for (std::size_t j = down(columns.first); j <= columns.last; j += LANES)
        add_exponentials(lanes(x + j) + lanes(b + j) - shift, total);
    return std::log(sum(total)) + shift;
}

}  // namespace

// False if there is a NaN or plus infinity.
bool DagCareful::load(const DagSentence& sentence) {
    width_ = up(sentence.vertices);
    transitions_.assign(sentence.vertices * width_, NONE);
    for (auto* table : {&tokens_, &alpha_, &beta_}) table->assign(sentence.tokens * width_, NONE);
    bool fine = true;
    for (std::size_t t = 0; t < sentence.tokens; ++t) fine &= !std::isnan(sentence.read_tokens(t, row(tokens_, t), width_));
    for (std::size_t i = 0; i + 1 < sentence.vertices; ++i)
        fine &= !std::isnan(sentence.read_transitions(i, row(transitions_, i), width_));
    return fine;
}

double DagCareful::forward(const DagSentence& sentence) {
    row(alpha_, 0)[0] = row(tokens_, 0)[0];
    for (std::size_t t = 1; t < sentence.tokens; ++t) {
        const Band before = sentence.emitters(t - 1), band = sentence.emitters(t);
        double *const alpha = row(alpha_, t), *const tokens = row(tokens_, t);
        for (std::size_t j = down(band.first); j <= band.last; j += LANES) {
            const Band rows{before.first, std::min(before.last, j + LANES - 2)};
            log_sum_rows(row(alpha_, t - 1), rows, transitions_.data() + j, width_, alpha + j);
            lanes(alpha + j) += lanes(tokens + j);
        }
    }
    return row(alpha_, sentence.tokens - 1)[sentence.vertices - 1];
}

void DagCareful::backward(const DagSentence& sentence, const DagPosteriors& posteriors) {
    const std::size_t end = sentence.tokens - 1, last = sentence.vertices - 1;
    const double log_z = row(alpha_, end)[last];
    row(beta_, end)[last] = row(tokens_, end)[last];
    set(posteriors.tokens, end * sentence.stride + last, 1.0);
    for (std::size_t t = end; t-- > 0;) {
        const Band band = sentence.emitters(t), after = sentence.emitters(t + 1);
        double *const alpha = row(alpha_, t), *const beta = row(beta_, t), *const tokens = row(tokens_, t);
        for (std::size_t i = band.first; i <= band.last; ++i) {
            const double rest =
                log_sum_columns(row(transitions_, i), {std::max(after.first, i + 1), after.last}, row(beta_, t + 1));
            beta[i] = tokens[i] + rest;
            set(posteriors.tokens, t * sentence.stride + i, std::exp(std::min(alpha[i] + rest - log_z, 0.0)));
        }
    }
}

void DagCareful::write_transitions(const DagSentence& sentence, const DagPosteriors& posteriors) const {
    const double log_z = row(alpha_, sentence.tokens - 1)[sentence.vertices - 1];
    for (std::size_t i = 0; i + 1 < sentence.vertices; ++i) {
        const Band tokens = sentence.emitted(i), columns = sentence.successors(i);
        const std::size_t past = std::min(tokens.last + 1, sentence.tokens - 1);
        for (std::size_t j = down(columns.first); j <= columns.last; j += LANES) {
            Lanes total{};
            for (std::size_t t = tokens.first; t < past; ++t)
                add_exponentials(row(alpha_, t)[i] - log_z + lanes(row(transitions_, i) + j) + lanes(row(beta_, t + 1) + j), total);
            for (std::size_t lane = 0; lane < LANES; ++lane)
                if (j + lane >= columns.first && j + lane <= columns.last)
                    set(posteriors.transitions, i * sentence.stride + j + lane, total[lane]);
        }
    }
}

double DagCareful::log_likelihood(const DagSentence& sentence, const DagPosteriors* posteriors) {
    if (!load(sentence)) return std::numeric_limits<double>::quiet_NaN();
    const double found = forward(sentence);
    if (posteriors && found > NONE) {
        backward(sentence, *posteriors);
        write_transitions(sentence, *posteriors);
    }
    return found;
}

}  // namespace fewstep

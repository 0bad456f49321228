#include "csrc/ops/dag/scaled_space.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "csrc/base/simd_f64.h"

namespace fewstep {

namespace {

constexpr double NONE = -std::numeric_limits<double>::infinity();
constexpr double LEAST_TRANSITION = -230.0;  // ln of what is kept of E,
constexpr double LEAST_TOKEN = -460.0;       // and of W
constexpr double LEAST_CELL = 1e-200;        // of A and B: times the least of E it is far above what a double can hold
constexpr double LEAST_STEP = 1e-250;        // highest cell of a step before rescaling
constexpr double TRACE = 1e-300;             // of what was dropped something stays in the books
constexpr double MOST_LOST = 1e-10;          // of Z
constexpr double MOST_EXPONENT = 600.0;
constexpr std::size_t GROUP = 4;  // rows, or lanes, that are done together

// x = exp(x - highest), 0 where that is below exp(least). Returns the sum; `cut` becomes the highest that was dropped.
double to_probabilities(double* x, std::size_t width, double highest_x, double least, double& cut) {
    Lanes total{}, dropped = Lanes{} + NONE;
    for (std::size_t j = 0; j < width; j += LANES) {
        Lanes value = lanes(x + j) - highest_x;
        const Words kept = value >= least;
        Lanes below;
        choose(below, kept, Lanes{} + NONE, value);
        choose(dropped, below > dropped, below, dropped);
        choose(value, kept, value, Lanes{} + NONE);
        exponentials(value);
        total += value;
        lanes(x + j) = value;
    }
    if (const double most = highest(dropped); most > NONE) cut = std::max(cut, std::exp(std::max(most, LEAST_EXPONENT)));
    return sum(total);
}

double highest_of(const double* x, std::size_t width) {
    Lanes found = Lanes{} + NONE;
    for (std::size_t j = 0; j < width; j += LANES) choose(found, lanes(x + j) > found, lanes(x + j), found);
    return highest(found);
}

// y[0, 8 N) = sum over i of a[i] E[i, column + 0..8 N)
template <std::size_t N>
void combine_rows(const double* a, Band rows, const double* E, std::size_t width, std::size_t column, double* y) {
    Lanes total[N]{};
    for (std::size_t i = rows.first; i <= rows.last; ++i) {
        const double* const from = E + i * width + column;
        for (std::size_t n = 0; n < N; ++n) total[n] += a[i] * lanes(from + n * LANES);
    }
    for (std::size_t n = 0; n < N; ++n) lanes(y + n * LANES) = total[n];
}

// y[r] = sum over j of E[i + r, j] b[j]
void combine_columns(const double* E, std::size_t width, std::size_t i, std::size_t first, std::size_t last, const double* b,
                     double* y) {
    Lanes total[GROUP]{};
    for (std::size_t j = down(first); j <= last; j += LANES)
        for (std::size_t r = 0; r < GROUP; ++r) total[r] += lanes(E + (i + r) * width + j) * lanes(b + j);
    for (std::size_t r = 0; r < GROUP; ++r) y[r] = sum(total[r]);
}

template <typename Value>
void put_band(const double* row, Band band, Value* to) {
    for (std::size_t j = band.first; j <= band.last; ++j) to[j] = static_cast<Value>(row[j]);
}

void put(const double* row, Band band, const Results& to) {
    if (to.narrow)
        put_band(row, band, to.narrow);
    else
        put_band(row, band, to.wide);
}

}  // namespace

void DagScaled::reset(const DagSentence& sentence) {
    width_ = up(sentence.vertices);
    E_.assign((sentence.vertices + GROUP) * width_, 0.0);
    for (auto* table : {&W_, &A_, &B_}) table->assign(sentence.tokens * width_ + LANES, 0.0);
    U_.assign(width_ + LANES, 0.0);
    for (auto* column : {&c_, &top_, &lost_A_, &cut_W_}) column->assign(sentence.tokens, 0.0);
    G_ = NONE;
    row_sum_ = 1.0;
    cut_E_ = 0.0;
}

// False if there is a NaN or plus infinity.
bool DagScaled::load(const DagSentence& sentence) {
    reset(sentence);
    bool fine = true;
    for (std::size_t t = 0; t < sentence.tokens; ++t) {
        top_[t] = sentence.read_tokens(t, row(W_, t), width_);
        fine &= !std::isnan(top_[t]);
        if (top_[t] > NONE) to_probabilities(row(W_, t), width_, top_[t], LEAST_TOKEN, cut_W_[t]);
    }
    for (std::size_t i = 0; i + 1 < sentence.vertices; ++i) {
        const double most = sentence.read_transitions(i, row(E_, i), width_);
        fine &= !std::isnan(most);
        G_ = std::max(G_, most);
    }
    if (fine && G_ > NONE)
        for (std::size_t i = 0; i + 1 < sentence.vertices; ++i) {
            const std::size_t start = down(i + 1), end = up(sentence.successors(i).last + 1);
            std::fill(row(E_, i), row(E_, i) + start, 0.0);
            row_sum_ = std::max(row_sum_, to_probabilities(row(E_, i) + start, end - start, G_, LEAST_TRANSITION, cut_E_));
            std::fill(row(E_, i) + end, row(E_, i + 1), 0.0);
        }
    return fine;
}

// Divides the new cells of a step by the highest of them, drops the least, and brings `lost` along. False if too little is left.
bool DagScaled::rescale(double* cells, std::size_t width, double& log_scale, double& lost) {
    const double most = highest_of(cells, width);
    if (!(most >= LEAST_STEP)) return false;
    const double factor = 1.0 / most;
    Lanes dropped{};
    for (std::size_t j = 0; j < width; j += LANES) {
        const Lanes value = lanes(cells + j) * factor;
        choose(lanes(cells + j), value >= LEAST_CELL, value, Lanes{});
        dropped += value - lanes(cells + j);
    }
    log_scale = std::log(most);
    lost = (lost + TRACE) * factor + sum(dropped);
    return true;
}

// A and c, if every step leaves enough.
bool DagScaled::forward(const DagSentence& sentence) {
    const auto n = static_cast<double>(sentence.vertices);
    row(A_, 0)[0] = 1.0;
    c_[0] = top_[0];
    for (std::size_t t = 1; t < sentence.tokens; ++t) {
        const Band before = sentence.emitters(t - 1), band = sentence.emitters(t);
        const double *const from = row(A_, t - 1), *const weights = row(W_, t);
        double* const to = row(A_, t);
        const std::size_t start = down(band.first), end = up(band.last + 1);
        for (std::size_t column = start, wide; column < end; column += wide) {
            wide = column + GROUP * LANES <= end ? GROUP * LANES : LANES;
            const Band rows{before.first, std::min(before.last, column + wide - 2)};
            const auto combine = wide == LANES ? combine_rows<1> : combine_rows<GROUP>;
            combine(from, rows, E_.data(), width_, column, to + column);
        }
        for (std::size_t j = start; j < end; j += LANES) lanes(to + j) *= lanes(weights + j);
        double lost = (lost_A_[t - 1] + n * n * cut_E_ + n * cut_W_[t]) * row_sum_, log_scale;
        if (!rescale(to + start, end - start, log_scale, lost)) return false;
        c_[t] = c_[t - 1] + G_ + top_[t] + log_scale;
        lost_A_[t] = lost;
    }
    return lost_A_.back() < MOST_LOST;
}

// B, the posteriors of the tokens, and A[t] times exp(c_t + G + d_{t+1} - log Z). Paths that are lost on the way are missing in
// beta[0,0] too, which is log Z: so that tells whether it is good enough.
bool DagScaled::backward(const DagSentence& sentence, const DagPosteriors& posteriors) {
    const std::size_t last = sentence.tokens - 1;
    const double log_z = c_[last];
    row(B_, last)[sentence.vertices - 1] = 1.0;
    set(posteriors.tokens, last * sentence.stride + sentence.vertices - 1, 1.0);
    double d = top_[last], lost = 0.0, log_scale;
    for (std::size_t t = last; t-- > 0;) {
        const Band band = sentence.emitters(t), after = sentence.emitters(t + 1);
        std::fill(U_.begin(), U_.end(), 0.0);
        for (std::size_t i = band.first; i <= band.last; i += GROUP)
            combine_columns(E_.data(), width_, i, std::max(after.first, i + 1), after.last, row(B_, t + 1), U_.data() + i);
        const double exponent = c_[t] + G_ + d - log_z;
        if (exponent > MOST_EXPONENT) return false;
        const double factor = std::exp(exponent);
        double *const A = row(A_, t), *const B = row(B_, t), *const W = row(W_, t), *const U = U_.data();
        const std::size_t start = down(band.first), end = up(band.last + 1);
        for (std::size_t j = start; j < end; j += LANES) {
            lanes(A + j) *= factor;
            lanes(B + j) = lanes(W + j) * lanes(U + j);
            lanes(U + j) *= lanes(A + j);
        }
        put(U, band, posteriors.tokens.at(t * sentence.stride));
        if (!rescale(B + start, end - start, log_scale, lost)) return false;
        d += G_ + top_[t] + log_scale;
    }
    return std::abs(d - log_z) < MOST_LOST * std::max(1.0, std::abs(log_z));
}

// E[i,j] sum_t A[t,i] B[t+1,j], some rows at a time.
void DagScaled::write_transitions(const DagSentence& sentence, const DagPosteriors& posteriors) {
    std::vector<double>& sums = U_;
    sums.resize(GROUP * width_);
    const std::size_t end = sentence.tokens - 1;
    for (std::size_t i = 0; i + 1 < sentence.vertices; i += GROUP) {
        const std::size_t past = std::min(i + GROUP, sentence.vertices - 1);
        const std::size_t first = sentence.emitted(i).first, last = std::min(sentence.emitted(past - 1).last + 1, end);
        const Band columns{down(i + 1), sentence.successors(past - 1).last};
        for (std::size_t j = columns.first; j <= columns.last; j += LANES) {
            Lanes total[GROUP]{};
            for (std::size_t t = first; t < last; ++t)
                for (std::size_t r = 0; r < GROUP; ++r) total[r] += row(A_, t)[i + r] * lanes(row(B_, t + 1) + j);
            for (std::size_t r = 0; r < GROUP; ++r) lanes(sums.data() + r * width_ + j) = lanes(row(E_, i + r) + j) * total[r];
        }
        for (std::size_t r = 0; i + r < past; ++r)
            put(sums.data() + r * width_, sentence.successors(i + r), posteriors.transitions.at((i + r) * sentence.stride));
    }
}

std::optional<double> DagScaled::log_likelihood(const DagSentence& sentence, const DagPosteriors* posteriors) {
    if (!load(sentence)) return std::numeric_limits<double>::quiet_NaN();
    const bool some =
        (sentence.tokens == 1 || G_ > NONE) && std::all_of(top_.begin(), top_.end(), [](double top) { return top > NONE; });
    if (!some) return NONE;
    if (!forward(sentence) || (posteriors && !backward(sentence, *posteriors))) return std::nullopt;
    if (posteriors) write_transitions(sentence, *posteriors);
    return c_.back();
}

}  // namespace fewstep

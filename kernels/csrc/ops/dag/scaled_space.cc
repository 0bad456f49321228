#include <algorithm>
#include <cmath>
#include <limits>

#include "csrc/base/simd_f64.h"
#include "csrc/ops/dag/edges.h"

namespace fewstep {

namespace {

constexpr double MINUS_INFINITY = -std::numeric_limits<double>::infinity();
constexpr double MIN_LOG_TRANSITION = -230.0;  // cells of E below exp of this are dropped,
constexpr double MIN_LOG_TOKEN = -460.0;       // and cells of W below exp of this
constexpr double MIN_CELL =
    1e-200;  // cells of A and B below this are dropped; its product with the smallest cell of E does not underflow
constexpr double MIN_STEP_MAX = 1e-250;  // smallest maximum of a step before rescaling
constexpr double MIN_LOST = 1e-300;      // added to the lost mass, so that it does not underflow
constexpr double MAX_LOST = 1e-10;       // relative to Z
constexpr double MAX_EXPONENT = 600.0;
constexpr std::size_t GROUP = 4;  // rows or lanes processed together
static_assert(GROUP * F64_LANES <= DagEdges::GROUP);

// x = exp(x - highest), 0 below exp(min_log). Return the sum; `max_dropped` becomes the largest dropped cell.
double to_probabilities(double* x, std::size_t width, double highest_x, double min_log, double& max_dropped) {
    F64Vector total{}, dropped = F64Vector{} + MINUS_INFINITY;
    for (std::size_t j = 0; j < width; j += F64_LANES) {
        F64Vector value = vector_at(x + j) - highest_x;
        const I64Vector is_kept = value >= min_log;
        F64Vector below;
        blend(below, is_kept, F64Vector{} + MINUS_INFINITY, value);
        blend(dropped, below > dropped, below, dropped);
        blend(value, is_kept, value, F64Vector{} + MINUS_INFINITY);
        exp_in_place(value);
        total += value;
        vector_at(x + j) = value;
    }
    if (const double highest = horizontal_max(dropped); highest > MINUS_INFINITY)
        max_dropped = std::max(max_dropped, std::exp(std::max(highest, MIN_EXPONENT)));
    return horizontal_sum(total);
}

double max_of(const double* x, std::size_t width) {
    F64Vector found = F64Vector{} + MINUS_INFINITY;
    for (std::size_t j = 0; j < width; j += F64_LANES) blend(found, vector_at(x + j) > found, vector_at(x + j), found);
    return horizontal_max(found);
}

// y[0, 8 N) = sum_i a[i] E[i, column + 0..8 N)
template <std::size_t N>
void combine_rows(const double* a, Band rows, const DagEdges& E, std::size_t column, double* y) {
    F64Vector total[N]{};
    for (std::size_t i = rows.first; i <= rows.last; ++i) {
        const double* const from = E[i] + column;
        for (std::size_t n = 0; n < N; ++n) total[n] += a[i] * vector_at(from + n * F64_LANES);
    }
    for (std::size_t n = 0; n < N; ++n) vector_at(y + n * F64_LANES) = total[n];
}

// y[r] = sum_j E[i + r, j] b[j]
void combine_columns(const DagEdges& E, std::size_t i, std::size_t first, std::size_t last, const double* b, double* y) {
    F64Vector total[GROUP]{};
    const double* rows[GROUP];
    for (std::size_t r = 0; r < GROUP; ++r) rows[r] = E[i + r];
    for (std::size_t j = round_down(first); j <= last; j += F64_LANES)
        for (std::size_t r = 0; r < GROUP; ++r) total[r] += vector_at(rows[r] + j) * vector_at(b + j);
    for (std::size_t r = 0; r < GROUP; ++r) y[r] = horizontal_sum(total[r]);
}

template <typename Value>
void put_band(const double* row, Band band, Value* to) {
    for (std::size_t j = band.first; j <= band.last; ++j) *to++ = static_cast<Value>(row[j]);
}

// Write the band of a row from `to` on.
void put(const double* row, Band band, const Results& to) {
    if (to.floats)
        put_band(row, band, to.floats);
    else
        put_band(row, band, to.doubles);
}

}  // namespace

void DagScaledSpace::reset(const DagSentence& sentence) {
    width_ = round_up(sentence.vertices);
    E_.reset(sentence, 0.0, GROUP);
    for (auto* table : {&W_, &A_, &B_}) table->assign(sentence.tokens * width_ + F64_LANES, 0.0);
    U_.assign(width_ + F64_LANES, 0.0);
    for (auto* column : {&c_, &top_, &lost_A_, &max_dropped_W_}) column->assign(sentence.tokens, 0.0);
    G_ = MINUS_INFINITY;
    row_sum_ = 1.0;
    max_dropped_E_ = 0.0;
}

// Return false if there is a NaN or plus infinity.
bool DagScaledSpace::load(const DagSentence& sentence) {
    reset(sentence);
    bool valid = true;
    for (std::size_t t = 0; t < sentence.tokens; ++t) {
        top_[t] = sentence.read_tokens(t, row(W_, t), width_);
        valid &= !std::isnan(top_[t]);
        if (top_[t] > MINUS_INFINITY) to_probabilities(row(W_, t), width_, top_[t], MIN_LOG_TOKEN, max_dropped_W_[t]);
    }
    for (std::size_t i = 0; i + 1 < sentence.vertices; ++i) {
        const double highest = sentence.read_transitions(i, E_[i]);
        valid &= !std::isnan(highest);
        G_ = std::max(G_, highest);
    }
    if (valid && G_ > MINUS_INFINITY)
        for (std::size_t i = 0; i + 1 < sentence.vertices; ++i) {
            const Band lanes = sentence.lanes(i);
            double* const first = E_[i] + lanes.first;
            const std::size_t count = lanes.last + 1 - lanes.first;
            row_sum_ = std::max(row_sum_, to_probabilities(first, count, G_, MIN_LOG_TRANSITION, max_dropped_E_));
        }
    return valid;
}

// Divide the new cells of a step by their maximum, drop the smallest, and update `lost`. Return false if the maximum is too small.
bool DagScaledSpace::rescale(double* cells, std::size_t width, double& log_scale, double& lost) {
    const double highest = max_of(cells, width);
    if (!(highest >= MIN_STEP_MAX)) return false;
    const double factor = 1.0 / highest;
    F64Vector dropped{};
    for (std::size_t j = 0; j < width; j += F64_LANES) {
        const F64Vector value = vector_at(cells + j) * factor;
        blend(vector_at(cells + j), value >= MIN_CELL, value, F64Vector{});
        dropped += value - vector_at(cells + j);
    }
    log_scale = std::log(highest);
    lost = (lost + MIN_LOST) * factor + horizontal_sum(dropped);
    return true;
}

// Compute A and c; return false if a step is too small or too much mass is lost.
bool DagScaledSpace::forward(const DagSentence& sentence) {
    const auto n = static_cast<double>(sentence.vertices);
    row(A_, 0)[0] = 1.0;
    c_[0] = top_[0];
    for (std::size_t t = 1; t < sentence.tokens; ++t) {
        const Band before = sentence.emitters(t - 1), band = sentence.emitters(t);
        const double *const from = row(A_, t - 1), *const weights = row(W_, t);
        double* const to = row(A_, t);
        const std::size_t start = round_down(band.first), end = round_up(band.last + 1);
        for (std::size_t column = start, doubles; column < end; column += doubles) {
            doubles = column + GROUP * F64_LANES <= end ? GROUP * F64_LANES : F64_LANES;
            const Band rows = sentence.predecessors(before, column, column + doubles - 1);
            const auto combine = doubles == F64_LANES ? combine_rows<1> : combine_rows<GROUP>;
            combine(from, rows, E_, column, to + column);
        }
        for (std::size_t j = start; j < end; j += F64_LANES) vector_at(to + j) *= vector_at(weights + j);
        double lost = (lost_A_[t - 1] + n * n * max_dropped_E_ + n * max_dropped_W_[t]) * row_sum_, log_scale;
        if (!rescale(to + start, end - start, log_scale, lost)) return false;
        c_[t] = c_[t - 1] + G_ + top_[t] + log_scale;
        lost_A_[t] = lost;
    }
    return lost_A_.back() < MAX_LOST;
}

// Compute B, the posteriors of the tokens, and A[t] exp(c_t + G + d_{t+1} - log Z). Lost paths are missing in beta[0,0] too, which
// should equal log Z, so the difference measures the accuracy.
bool DagScaledSpace::backward(const DagSentence& sentence, const DagPosteriors& posteriors) {
    const std::size_t last = sentence.tokens - 1;
    const double log_z = c_[last];
    row(B_, last)[sentence.vertices - 1] = 1.0;
    set(posteriors.tokens, last * sentence.stride + sentence.vertices - 1, 1.0);
    double d = top_[last], lost = 0.0, log_scale;
    for (std::size_t t = last; t-- > 0;) {
        const Band band = sentence.emitters(t), after = sentence.emitters(t + 1);
        std::fill(U_.begin(), U_.end(), 0.0);
        for (std::size_t i = band.first; i <= band.last; i += GROUP) {
            const std::size_t end = std::min(after.last, i + GROUP - 1 + sentence.longest_transition);
            combine_columns(E_, i, std::max(after.first, i + 1), end, row(B_, t + 1), U_.data() + i);
        }
        const double exponent = c_[t] + G_ + d - log_z;
        if (exponent > MAX_EXPONENT) return false;
        const double factor = std::exp(exponent);
        double *const A = row(A_, t), *const B = row(B_, t), *const W = row(W_, t), *const U = U_.data();
        const std::size_t start = round_down(band.first), end = round_up(band.last + 1);
        for (std::size_t j = start; j < end; j += F64_LANES) {
            vector_at(A + j) *= factor;
            vector_at(B + j) = vector_at(W + j) * vector_at(U + j);
            vector_at(U + j) *= vector_at(A + j);
        }
        put(U, band, posteriors.tokens.at(t * sentence.stride + band.first));
        if (!rescale(B + start, end - start, log_scale, lost)) return false;
        d += G_ + top_[t] + log_scale;
    }
    return std::abs(d - log_z) < MAX_LOST * std::max(1.0, std::abs(log_z));
}

// E[i,j] sum_t A[t,i] B[t+1,j], for a group of rows at a time.
void DagScaledSpace::write_transitions(const DagSentence& sentence, const DagPosteriors& posteriors) {
    std::vector<double>& sums = U_;
    sums.resize(GROUP * width_);
    const std::size_t end = sentence.tokens - 1;
    for (std::size_t i = 0; i + 1 < sentence.vertices; i += GROUP) {
        const std::size_t past = std::min(i + GROUP, sentence.vertices - 1);
        const std::size_t first = sentence.emitted(i).first, last = std::min(sentence.emitted(past - 1).last + 1, end);
        const Band columns{round_down(i + 1), std::max(sentence.successors(i).last, sentence.successors(past - 1).last)};
        for (std::size_t j = columns.first; j <= columns.last; j += F64_LANES) {
            F64Vector total[GROUP]{};
            for (std::size_t t = first; t < last; ++t)
                for (std::size_t r = 0; r < GROUP; ++r) total[r] += row(A_, t)[i + r] * vector_at(row(B_, t + 1) + j);
            for (std::size_t r = 0; r < GROUP; ++r) vector_at(sums.data() + r * width_ + j) = vector_at(E_[i + r] + j) * total[r];
        }
        for (std::size_t r = 0; i + r < past; ++r) {
            const Band own = sentence.successors(i + r);
            put(sums.data() + r * width_, own, posteriors.transitions.at(sentence.cell(i + r, own.first)));
        }
    }
}

std::optional<double> DagScaledSpace::log_likelihood(const DagSentence& sentence, const DagPosteriors* posteriors) {
    if (!load(sentence)) return std::numeric_limits<double>::quiet_NaN();
    const bool any_path = (sentence.tokens == 1 || G_ > MINUS_INFINITY) &&
                          std::all_of(top_.begin(), top_.end(), [](double top) { return top > MINUS_INFINITY; });
    if (!any_path) return MINUS_INFINITY;
    if (!forward(sentence) || (posteriors && !backward(sentence, *posteriors))) return std::nullopt;
    if (posteriors) write_transitions(sentence, *posteriors);
    return c_.back();
}

}  // namespace fewstep

#include "csrc/inference/network/top_tokens.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "csrc/base/simd_f32.h"

namespace fewstep {

namespace {

constexpr float MINUS_INFINITY = -std::numeric_limits<float>::infinity();
constexpr std::size_t STEP = F32_LANES, BLOCK = 8 * STEP;
constexpr std::size_t ROWS_PER_BLOCK = 32;  // rows whose logits are held at a time: few enough for a cache

// sum_i e^(x_i - top)
float sum_of_exponentials(const float* x, std::size_t count, float top) {
    F32Vector even{}, odd{};
    std::size_t position = 0;
    for (; position + 2 * STEP <= count; position += 2 * STEP) {
        even += vector_exp(load(x + position) - top);
        odd += vector_exp(load(x + position + STEP) - top);
    }
    if (position == count) return horizontal_sum(even + odd);
    float rest[2 * F32_LANES];
    for (std::size_t lane = 0; lane < 2 * STEP; ++lane) rest[lane] = position + lane < count ? x[position + lane] : MINUS_INFINITY;
    return horizontal_sum(even + vector_exp(load(rest) - top) + (odd + vector_exp(load(rest + STEP) - top)));
}

// The maximum of each lane over a block.
F32Vector block_max(const float* x) {
    F32Vector one = vector_max(load(x), load(x + STEP)), other = vector_max(load(x + 2 * STEP), load(x + 3 * STEP));
    one = vector_max(one, vector_max(load(x + 4 * STEP), load(x + 5 * STEP)));
    other = vector_max(other, vector_max(load(x + 6 * STEP), load(x + 7 * STEP)));
    return vector_max(one, other);
}

// Insert the largest elements of x into the sorted lists (scores, ids), which initially hold minus infinity.
void insert_top_k(const float* x, std::size_t count, std::size_t top_k, float* scores, std::int64_t* ids) {
    const auto insert = [&](std::size_t position) {
        if (!(x[position] > scores[top_k - 1])) return;
        std::size_t rank = top_k - 1;
        for (; rank > 0 && x[position] > scores[rank - 1]; --rank) scores[rank] = scores[rank - 1], ids[rank] = ids[rank - 1];
        scores[rank] = x[position], ids[rank] = static_cast<std::int64_t>(position);
    };
    std::size_t position = 0;
    for (; position + BLOCK <= count; position += BLOCK) {
        if (!any_greater(block_max(x + position), broadcast(scores[top_k - 1]))) continue;
        for (std::size_t vector = position; vector < position + BLOCK; vector += STEP)
            if (any_greater(load(x + vector), broadcast(scores[top_k - 1])))
                for (std::size_t lane = 0; lane < STEP; ++lane) insert(vector + lane);
    }
    for (; position < count; ++position) insert(position);
}

// max_i x_i
float max_of(const float* x, std::size_t count) {
    F32Vector top = broadcast(MINUS_INFINITY);
    std::size_t position = 0;
    for (; position + STEP <= count; position += STEP) top = vector_max(top, load(x + position));
    float highest = horizontal_max(top);
    for (; position < count; ++position) highest = std::max(highest, x[position]);
    return highest;
}

// The logits of one row by each network, and log sum_u e^logit(u).
struct EnsembleLogits {
    std::vector<const float*> logits;
    std::vector<double> normalisers;
};

// probabilities(v) = sum_n p_n(v), 0 where all terms are below e^-87
void sum_probabilities(const EnsembleLogits& ensemble, std::size_t num_tokens, float* probabilities) {
    std::fill_n(probabilities, num_tokens, 0.0F);
    for (std::size_t network = 0; network < ensemble.logits.size(); ++network) {
        const float* x = ensemble.logits[network];
        const auto normaliser = static_cast<float>(ensemble.normalisers[network]);
        std::size_t token = 0;
        for (; token + STEP <= num_tokens; token += STEP)
            store(probabilities + token, load(probabilities + token) + vector_exp(load(x + token) - normaliser));
        for (; token < num_tokens; ++token) probabilities[token] += std::exp(x[token] - normaliser);
    }
}

// log 1/N sum_n p_n(token), without underflow
float log_mean(const EnsembleLogits& ensemble, std::int64_t token) {
    double top = MINUS_INFINITY, sum = 0.0;
    const auto log_p = [&](std::size_t network) {
        return static_cast<double>(ensemble.logits[network][token]) - ensemble.normalisers[network];
    };
    for (std::size_t network = 0; network < ensemble.logits.size(); ++network) top = std::max(top, log_p(network));
    for (std::size_t network = 0; network < ensemble.logits.size(); ++network) sum += std::exp(log_p(network) - top);
    return static_cast<float>(top + std::log(sum / static_cast<double>(ensemble.logits.size())));
}

// Sort tokens by score, then by id. Rounding may have exchanged tokens of nearly equal probability before.
void sort_tokens(std::size_t top_k, float* scores, std::int64_t* ids) {
    for (std::size_t end = 1; end < top_k; ++end)
        for (std::size_t rank = end; rank > 0; --rank) {
            if (scores[rank] < scores[rank - 1] || (scores[rank] == scores[rank - 1] && ids[rank] >= ids[rank - 1])) break;
            std::swap(scores[rank], scores[rank - 1]), std::swap(ids[rank], ids[rank - 1]);
        }
}

// Replace indices in a subset of the vocabulary by token ids.
void map_to_vocabulary(const Vocabulary& vocabulary, TopTokens& result) {
    if (vocabulary.subset.empty()) return;
    for (std::int64_t& id : result.ids) id = vocabulary.subset[static_cast<std::size_t>(id)];
}

}  // namespace

void top_k_tokens_of_mean(std::span<const Vocabulary> vocabularies, std::span<const float* const> states, std::size_t rows,
                          std::size_t step_size, std::size_t first, std::size_t top_k, bool separate_eos, const TokenRules& rules,
                          TopTokens& result, ThreadTeam& team, std::span<const std::vector<std::int64_t>> row_bans) {
    const std::size_t networks = vocabularies.size(), num_tokens = vocabularies[0].num_tokens(),
                      rows_per_block = std::min(rows, ROWS_PER_BLOCK);
    result.logits.reserve(networks * rows_per_block * num_tokens);
    result.probabilities.reserve(num_tokens);
    result.scores.assign(rows * top_k, MINUS_INFINITY);
    result.ids.assign(rows * top_k, rules.eos);
    result.eos.resize(rows);
    float* probabilities = result.probabilities.data();
    EnsembleLogits ensemble{std::vector<const float*>(networks), std::vector<double>(networks)};
    for (std::size_t start = 0; start < rows; start += ROWS_PER_BLOCK) {
        const std::size_t end = std::min(rows, start + ROWS_PER_BLOCK);
        for (std::size_t network = 0; network < networks; ++network) {
            const float* block_states = states[network] + start * vocabularies[network].matrix.inputs();
            vocabularies[network].logits(block_states, end - start, result.logits.data() + network * rows_per_block * num_tokens,
                                         result.scratch, team);
        }
        for (std::size_t row = start; row < end; ++row) {
            for (std::size_t network = 0; network < networks; ++network) {
                const float* x = result.logits.data() + (network * rows_per_block + row - start) * num_tokens;
                const float top = max_of(x, num_tokens);
                ensemble.logits[network] = x;
                ensemble.normalisers[network] =
                    static_cast<double>(top) + std::log(static_cast<double>(sum_of_exponentials(x, num_tokens, top)));
            }
            sum_probabilities(ensemble, num_tokens, probabilities);
            const bool may_end = static_cast<std::int64_t>(first + row % step_size) >= rules.min_tokens;
            for (const std::int64_t token : rules.banned) probabilities[token] = MINUS_INFINITY;
            if (!row_bans.empty())
                for (const std::int64_t token : row_bans[row]) probabilities[token] = MINUS_INFINITY;
            if (separate_eos || !may_end) probabilities[rules.eos] = MINUS_INFINITY;
            float* scores = result.scores.data() + row * top_k;
            std::int64_t* ids = result.ids.data() + row * top_k;
            insert_top_k(probabilities, num_tokens, top_k, scores, ids);
            for (std::size_t rank = 0; rank < top_k; ++rank)
                if (scores[rank] > MINUS_INFINITY) scores[rank] = log_mean(ensemble, ids[rank]);
            sort_tokens(top_k, scores, ids);
            result.eos[row] = may_end ? log_mean(ensemble, rules.eos) : MINUS_INFINITY;
        }
    }
    map_to_vocabulary(vocabularies[0], result);
}

namespace {

// The query of a call for all its rows.
struct TopKRequest {
    std::size_t top_k;
    bool separate_eos;
    const TokenRules& rules;
    std::span<const std::vector<std::int64_t>> row_bans = {};
};

void resize_results(TopTokens& result, std::size_t rows, const TopKRequest& request, std::size_t num_tokens) {
    result.logits.reserve(std::min(rows, ROWS_PER_BLOCK) * num_tokens);
    result.scores.assign(rows * request.top_k, MINUS_INFINITY);
    result.ids.assign(rows * request.top_k, request.rules.eos);
    result.eos.resize(rows);
    result.normalisers.resize(rows);
    result.given_scores.assign(rows, MINUS_INFINITY);
}

// Rank the tokens of a row by its logits x, which are modified temporarily. The row predicts `slot`; the score of token `given` is
// returned too (-1: no token).
void rank_row(float* x, std::size_t num_tokens, std::int64_t slot, std::int64_t given, const TopKRequest& request, std::size_t row,
              TopTokens& result) {
    const auto& [top_k, separate_eos, rules, row_bans] = request;
    float* scores = result.scores.data() + row * top_k;
    const bool may_end = slot >= rules.min_tokens;
    const float eos = x[rules.eos];
    float top = eos;
    std::vector<std::pair<std::int64_t, float>> banned_logits;
    const auto ban = [&](std::int64_t token) {
        banned_logits.emplace_back(token, x[token]);
        top = std::max(top, x[token]);
        x[token] = MINUS_INFINITY;
    };
    for (const std::int64_t token : rules.banned) ban(token);
    if (!row_bans.empty())
        for (const std::int64_t token : row_bans[row]) ban(token);
    if (separate_eos || !may_end) x[rules.eos] = MINUS_INFINITY;
    insert_top_k(x, num_tokens, top_k, scores, result.ids.data() + row * top_k);
    if (given >= 0) result.given_scores[row] = x[given];
    for (std::size_t position = banned_logits.size(); position-- > 0;)  // backwards: a token may be banned twice
        x[banned_logits[position].first] = banned_logits[position].second;
    x[rules.eos] = eos;
    top = std::max(top, scores[0]);
    const float normaliser = top + std::log(sum_of_exponentials(x, num_tokens, top));
    for (std::size_t rank = 0; rank < top_k; ++rank) scores[rank] -= normaliser;
    result.normalisers[row] = normaliser;
    result.eos[row] = may_end ? eos - normaliser : MINUS_INFINITY;
    result.given_scores[row] -= normaliser;
}

}  // namespace

void top_k_tokens(const Vocabulary& vocabulary, const float* states, std::size_t rows, std::size_t step_size, std::size_t first,
                  std::size_t top_k, bool separate_eos, const TokenRules& rules, TopTokens& result, ThreadTeam& team,
                  std::span<const std::vector<std::int64_t>> row_bans) {
    const std::size_t num_tokens = vocabulary.num_tokens();
    const TopKRequest request{top_k, separate_eos, rules, row_bans};
    resize_results(result, rows, request, num_tokens);
    for (std::size_t start = 0; start < rows; start += ROWS_PER_BLOCK) {
        const std::size_t count = std::min(rows - start, ROWS_PER_BLOCK);
        vocabulary.logits(states + start * vocabulary.matrix.inputs(), count, result.logits.data(), result.scratch, team);
        team.run(count, [&](std::size_t position, int) {
            const std::size_t row = start + position;
            rank_row(result.logits.data() + position * num_tokens, num_tokens, static_cast<std::int64_t>(first + row % step_size),
                     -1, request, row, result);
        });
    }
    map_to_vocabulary(vocabulary, result);
}

void top_k_tokens(const Vocabulary& vocabulary, const float* states, std::span<const std::int64_t> slots,
                  std::span<const std::int64_t> given, std::size_t top_k, const TokenRules& rules,
                  const std::function<std::size_t(std::size_t)>& next, TopTokens& result, ThreadTeam& team) {
    const std::size_t num_tokens = vocabulary.num_tokens(), rows = slots.size();
    const TopKRequest request{top_k, false, rules};
    resize_results(result, rows, request, num_tokens);
    for (std::size_t start = 0; start < rows;) {
        const std::size_t end = std::min(rows, start + ROWS_PER_BLOCK);
        vocabulary.logits(states + start * vocabulary.matrix.inputs(), end - start, result.logits.data(), result.scratch, team);
        std::size_t row = start;
        for (; row < end; row = next(row))
            rank_row(result.logits.data() + (row - start) * num_tokens, num_tokens, slots[row], given[row], request, row, result);
        start = row;
    }
    map_to_vocabulary(vocabulary, result);
}

void best_allowed_tokens(const PackedMatrix& vocabulary, const Int8Matrix* int8, const float* states,
                         std::span<const std::int64_t> slots, std::size_t num_tokens, std::size_t top_k, const TokenRules& rules,
                         std::span<std::int64_t> best, std::span<float> probabilities, Buffer& logits, ThreadTeam& team) {
    const std::size_t width = int8 != nullptr ? int8->inputs() : vocabulary.inputs(),
                      num_outputs = int8 != nullptr ? int8->outputs() : vocabulary.outputs();
    const std::size_t panels = (num_tokens + PackedMatrix::panel_width() - 1) /
                               PackedMatrix::panel_width();  // that contain the first `num_tokens` outputs
    logits.reserve(std::min(slots.size(), ROWS_PER_BLOCK) * num_outputs);
    Int8Matrix::Scratch values;
    std::vector<float> scores(top_k);
    std::fill(best.begin(), best.end(), -1);
    for (std::size_t start = 0; start < slots.size(); start += ROWS_PER_BLOCK) {
        const std::size_t end = std::min(slots.size(), start + ROWS_PER_BLOCK);
        const float* block_states = states + start * width;
        if (int8 != nullptr)
            int8->multiply_first_panels(block_states, width, end - start, logits.data(), num_outputs, panels, Epilogue::STORE,
                                        values);
        else
            vocabulary.multiply_first_panels(block_states, width, end - start, logits.data(), num_outputs, panels, Epilogue::STORE,
                                             team);
        for (std::size_t row = start; row < end; ++row) {
            float* x = logits.data() + (row - start) * num_outputs;
            for (const std::int64_t token : rules.banned) x[token] = MINUS_INFINITY;
            if (slots[row] < rules.min_tokens) x[rules.eos] = MINUS_INFINITY;
            std::fill(scores.begin(), scores.end(), MINUS_INFINITY);
            insert_top_k(x, num_tokens, top_k, scores.data(), &best[row * top_k]);
            if (probabilities.empty() || best[row * top_k] < 0) continue;
            const float sum = sum_of_exponentials(x, num_tokens, scores[0]);
            for (std::size_t rank = 0; rank < top_k; ++rank)
                probabilities[row * top_k + rank] = std::exp(scores[rank] - scores[0]) / sum;
        }
    }
}

}  // namespace fewstep

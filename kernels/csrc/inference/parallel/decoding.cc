#include "csrc/inference/parallel/decoding.h"

#include <algorithm>
#include <numeric>

#include "csrc/inference/network/batch_partition.h"

namespace fewstep {

namespace {

// The rows of the max(1, floor(M (N - iteration) / N)) least certain of the M slots of each target, ties by slot; ascending.
std::vector<std::size_t> least_certain(const TargetPass& pass, const std::vector<float>& log_probs, std::size_t iteration,
                                       std::size_t iterations) {
    std::vector<std::size_t> hidden;
    for (std::size_t target = 0; target < pass.targets(); ++target) {
        std::vector<std::size_t> rows(pass.size(target));
        std::iota(rows.begin(), rows.end(), pass.start(target));
        const std::size_t count = std::max<std::size_t>(1, rows.size() * (iterations - iteration) / iterations);
        std::stable_sort(rows.begin(), rows.end(),
                         [&](std::size_t one, std::size_t other) { return log_probs[one] < log_probs[other]; });
        std::sort(rows.begin(), rows.begin() + static_cast<std::ptrdiff_t>(count));
        hidden.insert(hidden.end(), rows.begin(), rows.begin() + static_cast<std::ptrdiff_t>(count));
    }
    return hidden;
}

void fill_targets(TargetPass& pass, std::int64_t mask, std::size_t iterations, std::vector<std::int64_t>& ids,
                  std::vector<float>& log_probs) {
    ids.assign(pass.rows(), -1), log_probs.assign(pass.rows(), 0.0F);
    std::vector<std::size_t> hidden(pass.rows());
    std::iota(hidden.begin(), hidden.end(), std::size_t{0});
    for (std::size_t iteration = 0; iteration < iterations; ++iteration) {
        std::vector<std::int64_t> inputs = ids;
        if (iteration > 0) {
            hidden = least_certain(pass, log_probs, iteration, iterations);
            for (const std::size_t row : hidden) inputs[row] = mask;
        }
        pass.run(inputs);
        pass.rank(hidden, 1, false, [&](std::size_t position, const TopTokens& top_tokens, std::size_t row) {
            ids[hidden[position]] = top_tokens.ids[row];
            log_probs[hidden[position]] = top_tokens.scores[row];
        });
    }
}

}  // namespace

std::vector<std::vector<FilledTarget>> fill_slots(const ParallelNetwork& network, const Sources& sources,
                                                  const ParallelRules& rules, const FillOptions& options, int threads) {
    std::vector<std::vector<FilledTarget>> found(sources.rows.size());
    for_each_group(sources, threads, [&](const Sources& part, ThreadTeam& team) {
        TargetPass pass(network, part, rules, team, [&](const float* states, std::size_t tokens) {
            return predicted_lengths(network.slots, length_logits(network, states, tokens), tokens, network.network.shape.slots,
                                     options.candidates, options.around);
        });
        std::vector<std::int64_t> ids;
        std::vector<float> log_probs;
        fill_targets(pass, network.slots.mask, options.iterations, ids, log_probs);
        for (std::size_t target = 0; target < pass.targets(); ++target) {
            const auto first = static_cast<std::ptrdiff_t>(pass.start(target)),
                       last = static_cast<std::ptrdiff_t>(pass.start(target) + pass.size(target));
            found[part.rows[pass.sentence(target)]].push_back(
                {{ids.begin() + first, ids.begin() + last}, {log_probs.begin() + first, log_probs.begin() + last}});
        }
    });
    return found;
}

std::vector<RankedSlots> rank_slots(const ParallelNetwork& network, const Sources& sources, const ParallelRules& rules,
                                    std::size_t num_tokens, int threads) {
    std::vector<RankedSlots> found(sources.rows.size());
    for_each_group(sources, threads, [&](const Sources& part, ThreadTeam& team) {
        TargetPass pass(network, part, rules, team, [&](const float*, std::size_t tokens) {
            return std::vector<std::size_t>{upsampled(network.slots, tokens)};
        });
        std::vector<std::size_t> rows(pass.rows());
        std::iota(rows.begin(), rows.end(), std::size_t{0});
        pass.run(std::vector<std::int64_t>(pass.rows(), -1));
        std::size_t target = 0;
        pass.rank(rows, num_tokens, true, [&](std::size_t row, const TopTokens& top_tokens, std::size_t at) {
            while (row >= pass.start(target) + pass.size(target)) ++target;
            RankedSlots& ranked = found[part.rows[pass.sentence(target)]];
            const auto first = static_cast<std::ptrdiff_t>(at * num_tokens), last = first + static_cast<std::ptrdiff_t>(num_tokens);
            ranked.scores.insert(ranked.scores.end(), top_tokens.scores.begin() + first, top_tokens.scores.begin() + last);
            ranked.ids.insert(ranked.ids.end(), top_tokens.ids.begin() + first, top_tokens.ids.begin() + last);
            ranked.separators.push_back(top_tokens.eos[at]);
        });
    });
    return found;
}

}  // namespace fewstep

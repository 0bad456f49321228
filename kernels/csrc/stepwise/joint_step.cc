#include "csrc/stepwise/joint_step.h"

#include <cmath>
#include <limits>
#include <utility>

namespace fewstep {

namespace {

constexpr double NONE = -std::numeric_limits<double>::infinity();

// A chain of words that ends with a word of a slot, and where it comes from.
struct Chain {
    double score = NONE;
    std::size_t before = 0;
};

}  // namespace

void JointStep::choose_chain(const float* scores, const std::int64_t* ids, std::size_t direction, std::size_t step_size, float* chosen_scores,
                             std::int64_t* chosen) const {
    std::vector<Chain> chains;  // [slots,W]
    std::vector<LoneWord> last(words), own(words);
    for (std::size_t slot = direction; slot < step_size; slot += neighbours.leftward.size(), std::swap(last, own)) {
        const Chain* earlier = chains.data() + chains.size() - (slot == direction ? 0 : words);
        std::vector<Chain> next(words);
        for (std::size_t word = 0; word < words; ++word) own[word] = neighbours.alone(ids[slot * words + word]);
        for (std::size_t word = 0; word < words; ++word) {
            const double score = scores[slot * words + word];
            if (slot == direction || score == NONE) {
                next[word].score = score;
                continue;
            }
            for (std::size_t before = 0; before < words; ++before) {
                if (earlier[before].score == NONE) continue;
                const double whole = earlier[before].score + score + neighbours.link(direction, last[before], own[word]);
                if (whole > next[word].score) next[word] = {whole, before};
            }
        }
        chains.insert(chains.end(), next.begin(), next.end());
    }
    const Chain* ends = chains.data() + chains.size() - words;
    std::size_t best = 0;
    for (std::size_t word = 1; word < words; ++word)
        if (ends[word].score > ends[best].score) best = word;
    for (std::size_t place = chains.size() / words; place-- > 0;) {
        const std::size_t at = direction + place * neighbours.leftward.size();
        chosen[at] = ids[at * words + best], chosen_scores[at] = scores[at * words + best];
        best = chains[place * words + best].before;
    }
}

void JointStep::choose(const float* scores, const std::int64_t* ids, const float* eos_scores, std::size_t step_size, std::int64_t eos,
                       float* chosen_scores, std::int64_t* chosen) const {
    for (std::size_t slot = 0; slot < step_size; ++slot) chosen[slot] = ids[slot * words], chosen_scores[slot] = scores[slot * words];
    if (neighbours.ngram != nullptr)
        for (std::size_t direction = 0; direction < neighbours.leftward.size() && direction < step_size; ++direction)
            choose_chain(scores, ids, direction, step_size, chosen_scores, chosen);
    double going = 1.0;
    for (std::size_t slot = 0; slot < step_size; ++slot) {
        going *= 1.0 - std::exp(static_cast<double>(eos_scores[slot]));
        if (end > 0.0 ? 1.0 - going < end : eos_scores[slot] < scores[slot * words]) continue;
        chosen[slot] = eos, chosen_scores[slot] = eos_scores[slot];
        return;
    }
}

}  // namespace fewstep

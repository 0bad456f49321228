#include "csrc/inference/stepwise/joint_step.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

namespace fewstep {

namespace {

constexpr double NONE = -std::numeric_limits<double>::infinity();

// A chain of words that ends with a word of a slot, and where it comes from.
struct Chain {
    double score = NONE;
    std::size_t before = 0;
};

// The words of a slot by themselves, each looked up when it is asked for.
class LoneWords {
 public:
    LoneWords(const Neighbours& neighbours, const std::int64_t* ids, std::size_t words) : neighbours_(neighbours), ids_(ids), found_(words) {}

    const LoneWord& operator[](std::size_t word) {
        if (!found_[word]) found_[word] = neighbours_.alone(ids_[word]);
        return *found_[word];
    }

 private:
    const Neighbours& neighbours_;
    const std::int64_t* ids_;
    std::vector<std::optional<LoneWord>> found_;
};

}  // namespace

void JointStep::choose_chain(const float* scores, const std::int64_t* ids, std::size_t direction, std::size_t step_size, float* chosen_scores,
                             std::int64_t* chosen) const {
    const std::size_t directions = neighbours.leftward.size();
    const double most = neighbours.most();
    std::vector<Chain> chains;  // [slots,W]
    std::optional<LoneWords> last;
    for (std::size_t slot = direction; slot < step_size; slot += directions) {
        const Chain* earlier = chains.data() + chains.size() - (slot == direction ? 0 : words);
        LoneWords own(neighbours, ids + slot * words, words);
        std::vector<Chain> next(words);
        double best = NONE;  // of the last slot, where no other chain counts
        for (std::size_t word = 0; word < words; ++word) {
            const double score = scores[slot * words + word];
            if (slot == direction || score == NONE) {
                next[word].score = score;
                continue;
            }
            for (std::size_t before = 0; before < words; ++before) {
                const double apart = earlier[before].score + score;
                if (!(apart + most > std::max(next[word].score, best))) continue;
                const double whole = apart + neighbours.link(direction, (*last)[before], own[word]);
                if (whole > next[word].score) next[word] = {whole, before};
            }
            if (slot + directions >= step_size) best = std::max(best, next[word].score);
        }
        chains.insert(chains.end(), next.begin(), next.end());
        last.emplace(std::move(own));
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

#include "csrc/inference/stepwise/repeats.h"

#include <utility>

namespace fewstep {

std::span<const std::vector<std::int64_t>> Repeats::banned_after(std::span<const std::int64_t> previous) {
    banned_.resize(written_.size() * step_size_);
    for (std::size_t row = 0; row < written_.size(); ++row) {
        std::vector<std::int64_t>& written = written_[row];
        if (!previous.empty()) {
            const auto step = previous.subspan(row * step_size_, step_size_);
            written.insert(written.end(), step.begin(), step.end());
        }
        for (std::size_t slot = 0; slot < step_size_; ++slot) ban(written, slot, banned_[row * step_size_ + slot]);
    }
    return banned_;
}

// The tokens behind earlier occurrences of the last n - 1 tokens of the direction of a slot of the next step.
void Repeats::ban(const std::vector<std::int64_t>& written, std::size_t slot, std::vector<std::int64_t>& banned) const {
    const std::size_t directions = rules_.directions, next = written.size() + slot, context = (rules_.ngram - 1) * directions;
    banned.clear();
    for (std::size_t earlier = next % directions + context; earlier < next; earlier += directions) {
        bool same = true;
        for (std::size_t back = directions; same && back <= context; back += directions)
            same = written[earlier - back] == written[next - back];
        if (same) banned.push_back(written[earlier]);
    }
}

void Repeats::select(std::span<const std::int64_t> rows) {
    std::vector<std::vector<std::int64_t>> selected;
    selected.reserve(rows.size());
    for (const std::int64_t row : rows) selected.push_back(written_[static_cast<std::size_t>(row)]);
    written_ = std::move(selected);
}

}  // namespace fewstep

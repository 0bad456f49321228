#include "csrc/ops/align/aligner.h"

#include <charconv>

#include "csrc/base/parallel.h"

namespace fewstep {

namespace {

void append(std::string& text, std::int64_t number) {
    char digits[20];
    text.append(digits, std::to_chars(digits, digits + sizeof digits, number).ptr);
}

// The model's ids of all words; unchanged ids if the model has no words.
std::vector<std::uint32_t> model_ids(const AlignModel& model, const Dictionary& words) {
    std::vector<std::uint32_t> ids(words.size());
    for (std::uint32_t id = 0; id < words.size(); ++id) ids[id] = model.words().size() ? model.words().find(words.word(id)) : id;
    return ids;
}

void map_ids(std::span<const std::uint32_t> words, const std::vector<std::uint32_t>& ids, std::vector<std::uint32_t>& mapped) {
    mapped.clear();
    for (const std::uint32_t word : words) mapped.push_back(ids.empty() ? word : ids[word]);
}

}  // namespace

FoundLinks Aligner::align(bool margins, int threads) const {
    FoundLinks found{
        std::vector<std::int32_t>(target_.words.size()), std::vector<double>(static_cast<std::size_t>(target_.size())), {}, {}};
    if (margins) found.margins.resize(target_.words.size());
    found.sums = text_.align(t_.data(), tension, found.sources.data(), margins ? found.margins.data() : nullptr,
                             found.scores.data(), threads);
    const double ratio = length_ratio(text_.sizes());
    for (const std::int64_t pair : text_.usable().pairs)
        found.scores[static_cast<std::size_t>(pair)] += length_score(target_[pair].size(), source_[pair].size(), ratio);
    return found;
}

FoundLinks align_with(const AlignModel& model, const Sentences& source, const Sentences& target, const Dictionary& words,
                      int threads) {
    FoundLinks found{
        std::vector<std::int32_t>(target.words.size(), -1), std::vector<double>(static_cast<std::size_t>(target.size())), {}, {}};
    const std::vector<std::uint32_t> ids = model_ids(model, words);
    const UsablePairs usable(source, target, model.header().options.max_length);
    parallel_for(static_cast<std::int64_t>(usable.pairs.size()), threads, [&](std::int64_t index, int) {
        thread_local std::vector<std::uint32_t> left, right;
        const std::int64_t pair = usable.pairs[static_cast<std::size_t>(index)];
        map_ids(source[pair], ids, left);
        map_ids(target[pair], ids, right);
        const ForcedPair forced = force_align(model, left, right);
        const auto start = static_cast<std::ptrdiff_t>(target.starts[static_cast<std::size_t>(pair)]);
        std::copy(forced.links.begin(), forced.links.end(), found.sources.begin() + start);
        found.scores[static_cast<std::size_t>(pair)] =
            length_score(right.size(), left.size(), model.header().length_ratio) + forced.log_likelihood;
    });
    return found;
}

void append_links(std::string& text, std::span<const std::int32_t> sources, bool reverse) {
    bool blank = false;
    for (std::size_t j = 0; j < sources.size(); ++j) {
        if (sources[j] < 0) continue;
        if (blank) text += ' ';
        blank = true;
        append(text, reverse ? static_cast<std::int64_t>(j) : sources[j]);
        text += '-';
        append(text, reverse ? sources[j] : static_cast<std::int64_t>(j));
    }
}

}  // namespace fewstep

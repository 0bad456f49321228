#include "csrc/base/parallel.h"

#include <nanobind/stl/map.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "bindings/arrays.h"
#include "bindings/bindings.h"
#include "bindings/inference/network.h"
#include "bindings/numbers.h"
#include "csrc/inference/parallel/ctc_beam.h"
#include "csrc/inference/parallel/decoding.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace fewstep {

namespace {

SlotInput input_of(const std::string& name) {
    if (name == "mask") return SlotInput::MASK;
    if (name == "uniform") return SlotInput::UNIFORM;
    if (name == "soft") return SlotInput::SOFT;
    if (name == "repeat") return SlotInput::REPEAT;
    if (name == "gaussian") return SlotInput::GAUSSIAN;
    throw std::invalid_argument("input: expected mask, uniform, soft, repeat or gaussian, got " + name);
}

constexpr std::size_t MAX_ITERATIONS = 1 << 12;  // each is a pass of the decoder
constexpr double MAX_UPSAMPLING = 1 << 10;       // slots of a source token
constexpr std::int64_t MAX_OFFSET = 1 << 24;     // of length classes

struct BoundParallelNetwork {
    ParallelNetwork parallel;

    ParallelRules rules(std::int64_t separator, std::vector<std::int64_t> banned, std::size_t shortlist_tokens,
                        std::size_t shortlist_links) const {
        require_ids("banned", banned, parallel.network.shape.target_vocabulary);
        require_ids("separator", std::array{separator}, parallel.network.shape.target_vocabulary);
        const ShortlistOptions shortlist{shortlist_tokens, shortlist_links};
        require_shortlist(parallel.network.lexicon, shortlist, separator);
        return {{std::move(banned), separator, 0}, shortlist};
    }

    Sources checked(const Table& ids, const Ids& lengths, int threads) const {
        const TransformerShape& shape = parallel.network.shape;
        require_threads(threads);
        Sources sources = sources_of(ids, lengths, shape.source_positions, shape.source_vocabulary);
        for (std::size_t row = 0; parallel.slots.upsampling > 0.0 && row < sources.rows.size(); ++row) {
            const std::int64_t length = sources.lengths[row];
            require(upsampled(parallel.slots, static_cast<std::size_t>(length)) <= shape.slots,
                    "lengths" + expected_at(row) + "a source with codes for all of its slots" + got(length));
        }
        return sources;
    }

    // Return the targets of all sentences: the sentence of each, numbers of slots, and padded ids and log-probabilities.
    auto fill(const Table& ids, const Ids& lengths, std::size_t candidates, bool around, std::size_t iterations,
              std::int64_t separator, std::vector<std::int64_t> banned, std::size_t shortlist_tokens, std::size_t shortlist_links,
              int threads) const {
        require(!parallel.lengths.empty(), "fill: expected a network that predicts lengths, got one that upsamples its sources");
        require_at_least("candidates", candidates, std::size_t{1});
        require_range("iterations", iterations, std::size_t{1}, MAX_ITERATIONS);
        const Sources sources = checked(ids, lengths, threads);
        const ParallelRules given = rules(separator, std::move(banned), shortlist_tokens, shortlist_links);
        std::vector<std::int64_t> sentences, sizes, tokens;
        std::vector<float> log_probs;
        {
            const nb::gil_scoped_release release;
            const auto found = fill_slots(parallel, sources, given, {candidates, around, iterations}, threads);
            std::size_t longest = 0, row = 0;
            for (std::size_t sentence = 0; sentence < found.size(); ++sentence)
                for (const FilledTarget& target : found[sentence]) {
                    sentences.push_back(static_cast<std::int64_t>(sentence));
                    sizes.push_back(static_cast<std::int64_t>(target.ids.size()));
                    longest = std::max(longest, target.ids.size());
                }
            tokens.assign(sizes.size() * longest, 0), log_probs.assign(sizes.size() * longest, 0.0F);
            for (const std::vector<FilledTarget>& targets : found)
                for (const FilledTarget& target : targets) {
                    std::copy_n(target.ids.data(), target.ids.size(), tokens.data() + row * longest);
                    std::copy_n(target.log_probs.data(), target.ids.size(), log_probs.data() + row++ * longest);
                }
        }
        return std::tuple(own(std::move(sentences)), own(std::move(sizes)), own(std::move(tokens)), own(std::move(log_probs)));
    }

    // Return the ranked slots of all sentences, padded: scores and ids [slots,W], scores of the separator, and numbers of slots.
    auto rank(const Table& ids, const Ids& lengths, std::size_t num_tokens, std::int64_t separator,
              std::vector<std::int64_t> banned, std::size_t shortlist_tokens, std::size_t shortlist_links, int threads) const {
        require(parallel.slots.upsampling > 0.0,
                "rank: expected a network that upsamples its sources, got one that predicts lengths");
        require_range("tokens", num_tokens, std::size_t{1}, parallel.network.shape.target_vocabulary);
        const Sources sources = checked(ids, lengths, threads);
        const ParallelRules given = rules(separator, std::move(banned), shortlist_tokens, shortlist_links);
        std::vector<float> scores, separators;
        std::vector<std::int64_t> tokens, sizes;
        {
            const nb::gil_scoped_release release;
            const auto found = rank_slots(parallel, sources, given, num_tokens, threads);
            constexpr float MINUS_INFINITY = -std::numeric_limits<float>::infinity();
            std::size_t longest = 0;
            for (const RankedSlots& slots : found) {
                sizes.push_back(static_cast<std::int64_t>(slots.separators.size()));
                longest = std::max(longest, slots.separators.size());
            }
            scores.assign(found.size() * longest * num_tokens, MINUS_INFINITY),
                separators.assign(found.size() * longest, MINUS_INFINITY), tokens.assign(found.size() * longest * num_tokens, 0);
            for (std::size_t row = 0; row < found.size(); ++row) {
                std::copy(found[row].scores.begin(), found[row].scores.end(),
                          scores.begin() + static_cast<std::ptrdiff_t>(row * longest * num_tokens));
                std::copy(found[row].ids.begin(), found[row].ids.end(),
                          tokens.begin() + static_cast<std::ptrdiff_t>(row * longest * num_tokens));
                std::copy(found[row].separators.begin(), found[row].separators.end(),
                          separators.begin() + static_cast<std::ptrdiff_t>(row * longest));
            }
        }
        return std::tuple(own(std::move(scores)), own(std::move(tokens)), own(std::move(separators)), own(std::move(sizes)));
    }
};

BoundParallelNetwork make(const NamedArrays& arrays, const Sizes& sizes, std::size_t classes, const std::string& input,
                          std::int64_t mask, double temperature, double upsampling, std::int64_t length_offset,
                          std::int64_t min_slots, const std::vector<std::int64_t>& impossible, const Ids& common_tokens,
                          const Table& linked_tokens, const std::string& precision) {
    const Arrays floats = weights_of(arrays);
    const TransformerShape shape = shape_of(sizes);
    require_ids("mask", std::array{mask}, shape.target_vocabulary);
    require_ids("impossible", impossible, shape.target_vocabulary);
    const SlotInput slot_input = input_of(input);
    require(temperature > 0.0, "temperature: expected more than 0" + got(temperature));
    require_finite("temperature", temperature);
    require_range("upsampling", upsampling, 0.0, MAX_UPSAMPLING);
    require(upsampling > 0.0 || (slot_input != SlotInput::REPEAT && slot_input != SlotInput::GAUSSIAN),
            "upsampling: expected more than 0 with input " + input);
    require_range("length_offset", length_offset, -MAX_OFFSET, MAX_OFFSET);
    require_range("min_slots", min_slots, std::int64_t{1}, static_cast<std::int64_t>(shape.slots));
    Lexicon lexicon = lexicon_of(common_tokens, linked_tokens, shape);
    const Slots empty{slot_input, mask, temperature, upsampling, length_offset, min_slots};
    const nb::gil_scoped_release release;
    Transformer network(shape, floats);
    const float* lengths = classes ? floats.at("lengths", {classes, shape.width}) : nullptr;
    network.lexicon = std::move(lexicon);
    return {ParallelNetwork(std::move(network), precision_of(precision), empty, {lengths, lengths + classes * shape.width},
                            impossible)};
}

}  // namespace

void bind_parallel_network(nb::module_& module) {
    nb::class_<BoundParallelNetwork>(module, "ParallelNetwork")
        .def("fill", &BoundParallelNetwork::fill, "sources"_a, "lengths"_a, nb::kw_only(), "candidates"_a, "around"_a,
             "iterations"_a, "separator"_a, "banned"_a, "shortlist_tokens"_a, "shortlist_links"_a, "threads"_a)
        .def("rank", &BoundParallelNetwork::rank, "sources"_a, "lengths"_a, nb::kw_only(), "tokens"_a, "separator"_a, "banned"_a,
             "shortlist_tokens"_a, "shortlist_links"_a, "threads"_a);
    module.def("make_parallel_network", make, "arrays"_a, nb::kw_only(), "shape"_a, "classes"_a, "input"_a, "mask"_a,
               "temperature"_a, "upsampling"_a, "length_offset"_a, "min_slots"_a, "impossible"_a, "common_tokens"_a,
               "linked_tokens"_a, "precision"_a);
}

// Prefix beam search over CTC slots.

namespace {

using Scores = Given<const float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

void require_arrays(const Cube<float>& scores, const Cube<std::int64_t>& token_ids, const Scores& blanks,
                    const Vector<std::int64_t>& lengths) {
    bool same = lengths.size() == scores.shape(0);
    for (std::size_t axis = 0; axis < 3; ++axis) same = same && scores.shape(axis) == token_ids.shape(axis);
    for (std::size_t axis = 0; axis < 2; ++axis) same = same && scores.shape(axis) == blanks.shape(axis);
    require(same, "ctc_beam: expected scores and token_ids [B,T,C], blanks [B,T] and lengths [B] of the same sizes");
    for (const std::int64_t length : view(lengths)) {
        require(length >= 0 && length <= static_cast<std::int64_t>(blanks.shape(1)),
                "lengths: expected 0 to " + std::to_string(blanks.shape(1)) + " slots, got " + std::to_string(length));
    }
}

auto ctc_beam(const Cube<float>& scores, const Cube<std::int64_t>& token_ids, const Scores& blanks,
              const Vector<std::int64_t>& lengths, std::int64_t beam_size, double ngram_weight, double token_bonus,
              double length_penalty, std::int64_t n_best, const NgramScorer* ngram, int threads) {
    require_arrays(scores, token_ids, blanks, lengths);
    require_at_least("beam_size", beam_size, std::int64_t{1});
    require_at_least("n_best", n_best, std::int64_t{1});
    for (const auto& [name, value] :
         {std::pair{"ngram_weight", ngram_weight}, {"token_bonus", token_bonus}, {"length_penalty", length_penalty}})
        require_finite(name, value);
    require_threads(threads);
    require_values("scores", scores);
    const CtcBeamOptions options{beam_size, ngram_weight, token_bonus, length_penalty, n_best};
    const std::int64_t vocabulary = ngram ? static_cast<std::int64_t>(ngram->size()) : std::numeric_limits<std::int32_t>::max();
    const std::size_t slots = scores.shape(1), width = scores.shape(2);
    std::vector<std::vector<CtcHypothesis>> found(lengths.size());
    {
        const nb::gil_scoped_release release;
        const auto count = static_cast<std::int64_t>(found.size());
        std::vector<CtcBeam> searches(static_cast<std::size_t>(std::clamp<std::int64_t>(count, 1, threads)), CtcBeam(options));
        parallel_for(count, threads, [&](std::int64_t sentence, int thread) {
            const auto at = static_cast<std::size_t>(sentence);
            const CtcSlots slots_of_sentence{scores.data() + at * slots * width, token_ids.data() + at * slots * width,
                                             blanks.data() + at * slots,         lengths.data()[at],
                                             static_cast<std::int64_t>(width),   vocabulary};
            found[at] = searches[static_cast<std::size_t>(thread)].search(slots_of_sentence, ngram);
        });
    }
    const auto hypothesis = [](const CtcHypothesis& one) { return std::tuple(one.ids, one.score); };
    return mapped(found, [&](const auto& sentence) { return mapped(sentence, hypothesis); });
}

}  // namespace

void bind_ctc_beam(nb::module_& module) {
    module.def("ctc_beam", &ctc_beam, "scores"_a, "token_ids"_a, "blanks"_a, "lengths"_a, nb::kw_only(), "beam_size"_a,
               "ngram_weight"_a, "token_bonus"_a, "length_penalty"_a, "n_best"_a, "ngram"_a.none(), "threads"_a);
}

}  // namespace fewstep

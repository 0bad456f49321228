#include "csrc/inference/network/transformer.h"

#include <nanobind/stl/map.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "bindings/arrays.h"
#include "bindings/bindings.h"
#include "bindings/inference/beam_options.h"
#include "bindings/inference/network.h"
#include "bindings/numbers.h"
#include "csrc/inference/ngram/model.h"
#include "csrc/inference/stepwise/search.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace fewstep {

namespace {

using Matrix = Given<const float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

SlotMask mask_of(const std::string& name) {
    if (name == "block") return SlotMask::BLOCK;
    if (name == "causal") return SlotMask::CAUSAL;
    if (name == "same-direction") return SlotMask::SAME_DIRECTION;
    throw std::invalid_argument("mask: expected block, causal or same-direction, got " + name);
}

struct BoundTransformer {
    Transformer model;

    // Return this network and the other members of the ensemble.
    std::vector<const Transformer*> ensemble_with(const std::vector<BoundTransformer*>& others) const {
        std::vector<const Transformer*> networks{&model};
        for (const BoundTransformer* other : others) {
            require(other != nullptr, "others: expected networks, got None");
            const TransformerShape &shape = model.shape, &other_shape = other->model.shape;
            require(shape.source_vocabulary == other_shape.source_vocabulary &&
                        shape.target_vocabulary == other_shape.target_vocabulary,
                    "others: expected networks over the same vocabularies");
            require(other->model.lexicon.common_tokens.size() == model.lexicon.common_tokens.size(),
                    "others: expected networks with one lexicon");
            require(shape.source_positions == other_shape.source_positions && shape.slots == other_shape.slots,
                    "others: expected the same numbers of position codes and slots");
            networks.push_back(&other->model);
        }
        return networks;
    }

    Sources checked(const Table& ids, const Ids& lengths, const std::vector<std::int64_t>& limits, const SearchRules& rules,
                    const StepRules& steps, int threads) const {
        const TransformerShape& shape = model.shape;
        require_threads(threads);
        require(lengths.size() == ids.shape(0) && limits.size() == ids.shape(0),
                "lengths, limits: expected one for each row of sources");
        require_limits(limits);
        const auto size = static_cast<std::int64_t>(rules.slots.step_size),
                   slots = static_cast<std::int64_t>(shape.slots) / size * size;
        require(rules.slots.directions >= 1 && rules.token_rules.min_tokens >= 0,
                "rules: expected directions of at least 1, min_tokens of at least 0");
        require(rules.no_repeat_ngram == 0 || rules.slots.step_size <= rules.slots.directions,
                "no_repeat_ngram: expected 0 for a step of several tokens of a direction, got " +
                    std::to_string(rules.no_repeat_ngram));
        require_ids("banned", rules.token_rules.banned, shape.target_vocabulary);
        require_shortlist(model.lexicon, rules.shortlist, rules.token_rules.eos);
        require_ids("eos, pad", std::array{steps.eos, steps.pad}, shape.target_vocabulary);
        const auto& banned = rules.token_rules.banned;
        require(std::find(banned.begin(), banned.end(), steps.pad) != banned.end(),
                "banned: expected pad (" + std::to_string(steps.pad) + ") among them: it fills the slots without a token");
        for (std::size_t row = 0; row < limits.size(); ++row)
            require(limits[row] <= slots,
                    "limits" + expected_at(row) + "at most " + std::to_string(slots) + " slots with codes" + got(limits[row]));
        return sources_of(ids, lengths, shape.source_positions, shape.source_vocabulary);
    }

    template <typename Search>
    auto run(const Table& ids, const Ids& lengths, const Ids& limits, const SearchRules& rules, const StepRules& steps, int threads,
             const Search& search) const {
        const std::vector<std::int64_t> max_lengths(view(limits).begin(), view(limits).end());
        const Sources sources = checked(ids, lengths, max_lengths, rules, steps, threads);
        std::vector<Outcome> outcomes;
        {
            const nb::gil_scoped_release release;
            outcomes = search(sources, max_lengths);
        }
        return as_tuples(outcomes);
    }

    auto greedy(const Table& ids, const Ids& lengths, const Ids& limits, int step_size, bool per_direction, std::int64_t eos,
                std::int64_t pad, double alpha, bool gnmt, const std::string& mask, std::size_t directions,
                std::vector<std::int64_t> banned, std::int64_t min_tokens, std::size_t no_repeat_ngram,
                std::size_t shortlist_tokens, std::size_t shortlist_links, int threads,
                const std::vector<BoundTransformer*>& others, const NgramScorer* ngram, double ngram_weight,
                const std::vector<bool>& right_to_left, double end_threshold, std::size_t num_candidates) const {
        require(ngram == nullptr || ngram->size() == model.shape.target_vocabulary,
                "ngram: expected a model over the network's vocabulary");
        require_at_least("num_candidates", num_candidates, std::size_t{1});
        require_finite("end_threshold", end_threshold);
        num_candidates = std::min(num_candidates, model.shape.target_vocabulary);  // there are no others
        const JointStep joint_step{coupling_of(ngram, ngram_weight, right_to_left), end_threshold, num_candidates};
        const bool is_joint = ngram != nullptr || end_threshold > 0.0;
        const BeamOptions options = beam_options(1, step_size, per_direction, "exact", eos, pad, 1, alpha, gnmt);
        const SearchRules rules{{static_cast<std::size_t>(step_size), mask_of(mask), directions},
                                {std::move(banned), eos, min_tokens},
                                {shortlist_tokens, shortlist_links},
                                no_repeat_ngram};
        const std::vector<const Transformer*> networks = ensemble_with(others);
        return run(ids, lengths, limits, rules, options.rules, threads,
                   [&](const Sources& sources, const std::vector<std::int64_t>& max_lengths) {
                       return fewstep::greedy(networks, sources, max_lengths, options, rules, is_joint ? &joint_step : nullptr,
                                              threads);
                   });
    }

    auto beam_search(const Table& ids, const Ids& lengths, const Ids& limits, int beams, int step_size, bool per_direction,
                     const std::string& selection, std::int64_t eos, std::int64_t pad, int n_best, double alpha, bool gnmt,
                     double beam_threshold, const std::string& mask, std::size_t directions, std::vector<std::int64_t> banned,
                     std::int64_t min_tokens, std::size_t no_repeat_ngram, std::size_t shortlist_tokens,
                     std::size_t shortlist_links, std::size_t num_candidates, bool separate_eos, int threads,
                     const std::vector<BoundTransformer*>& others, const NgramScorer* ngram, double ngram_weight,
                     const std::vector<bool>& right_to_left) const {
        require(ngram == nullptr || ngram->size() == model.shape.target_vocabulary,
                "ngram: expected a model over the network's vocabulary");
        const BeamOptions options = beam_options(beams, step_size, per_direction, selection, eos, pad, n_best, alpha, gnmt,
                                                 beam_threshold, coupling_of(ngram, ngram_weight, right_to_left));
        const SearchRules rules{{static_cast<std::size_t>(step_size), mask_of(mask), directions},
                                {std::move(banned), eos, min_tokens},
                                {shortlist_tokens, shortlist_links},
                                no_repeat_ngram};
        require_at_least("num_candidates", num_candidates, std::size_t{1});
        num_candidates = std::min(num_candidates, model.shape.target_vocabulary);
        const std::vector<const Transformer*> networks = ensemble_with(others);
        return run(ids, lengths, limits, rules, options.rules, threads,
                   [&](const Sources& sources, const std::vector<std::int64_t>& max_lengths) {
                       return fewstep::beam_search(networks, sources, max_lengths, options, rules, num_candidates, separate_eos,
                                                   threads);
                   });
    }
};

BoundTransformer make(const NamedArrays& arrays, const Sizes& sizes, const Ids& common_tokens, const Table& linked_tokens,
                      const std::string& precision) {
    const Arrays floats = weights_of(arrays);
    const TransformerShape shape = shape_of(sizes);
    const Precision chosen = precision_of(precision);
    Lexicon lexicon = lexicon_of(common_tokens, linked_tokens, shape);
    const nb::gil_scoped_release release;
    Transformer model(shape, floats);
    model.lexicon = std::move(lexicon);
    model.quantize(chosen);
    return {std::move(model)};
}

nb::ndarray<nb::numpy, float, nb::ndim<2>> multiply(const PackedMatrix& matrix, const Matrix& x, const std::string& precision,
                                                    int threads) {
    require(x.shape(1) == matrix.inputs(), "x: expected [rows," + std::to_string(matrix.inputs()) + "]");
    require_threads(threads);
    const std::size_t rows = x.shape(0);
    const Precision chosen = precision_of(precision);
    auto* y = new Buffer(std::max<std::size_t>(1, rows * matrix.outputs()));
    nb::capsule owner(y, [](void* at) noexcept { delete static_cast<Buffer*>(at); });
    {
        const nb::gil_scoped_release release;
        QuantizedRows scratch;
        gemm(matrix, QuantizedMatrix(matrix, chosen), x.data(), rows, y->data(), Epilogue::STORE, scratch,
             ThreadTeam::for_this_thread(threads));
    }
    return {y->data(), {rows, matrix.outputs()}, owner};
}

}  // namespace

void bind_transformer(nb::module_& module) {
    nb::class_<PackedMatrix>(module, "PackedMatrix")
        .def(
            "__init__",
            [](PackedMatrix* self, const Matrix& weights, const Vector<float>& bias) {
                require(weights.size() > 0, "weights: expected at least one row of one weight");
                require(bias.size() == weights.shape(0), "bias: expected one for each row of weights");
                new (self) PackedMatrix(weights.data(), bias.data(), weights.shape(0), weights.shape(1));
            },
            "weights"_a, "bias"_a)
        .def("multiply", multiply, "x"_a, nb::kw_only(), "precision"_a = "float32", "threads"_a = 1);
    nb::class_<BoundTransformer>(module, "Transformer")
        .def("greedy", &BoundTransformer::greedy, "sources"_a, "lengths"_a, "limits"_a, nb::kw_only(), "step_size"_a,
             "per_direction"_a, "eos"_a, "pad"_a, "alpha"_a, "gnmt"_a, "mask"_a, "directions"_a, "banned"_a, "min_tokens"_a,
             "no_repeat_ngram"_a, "shortlist_tokens"_a, "shortlist_links"_a, "threads"_a, "others"_a, "ngram"_a.none(),
             "ngram_weight"_a, "right_to_left"_a, "end_threshold"_a, "num_candidates"_a)
        .def("beam_search", &BoundTransformer::beam_search, "sources"_a, "lengths"_a, "limits"_a, nb::kw_only(), "beams"_a,
             "step_size"_a, "per_direction"_a, "selection"_a, "eos"_a, "pad"_a, "n_best"_a, "alpha"_a, "gnmt"_a, "beam_threshold"_a,
             "mask"_a, "directions"_a, "banned"_a, "min_tokens"_a, "no_repeat_ngram"_a, "shortlist_tokens"_a, "shortlist_links"_a,
             "num_candidates"_a, "separate_eos"_a, "threads"_a, "others"_a, "ngram"_a.none(), "ngram_weight"_a, "right_to_left"_a);
    module.def("make_transformer", make, "arrays"_a, nb::kw_only(), "shape"_a, "common_tokens"_a, "linked_tokens"_a, "precision"_a);
}

}  // namespace fewstep

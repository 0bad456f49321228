#include <nanobind/stl/map.h>

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <optional>
#include <span>

#include "bindings/arrays.h"
#include "bindings/bindings.h"
#include "bindings/inference/beam_options.h"
#include "bindings/inference/network.h"
#include "bindings/numbers.h"
#include "csrc/inference/aggressive/decoding.h"
#include "csrc/inference/network/shortlist.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace fewstep {

namespace {

Proposals proposals_of(const std::string& name) {
    if (name == "network") return Proposals::NETWORK;
    if (name == "lookup") return Proposals::LOOKUP;
    if (name == "jacobi") return Proposals::JACOBI;
    if (name == "nothing") return Proposals::NOTHING;
    throw std::invalid_argument("proposals: expected network, lookup, jacobi or nothing, got " + name);
}

Sight sight_of(const std::string& name) {
    if (name == "prefix") return Sight::PREFIX;
    if (name == "all") return Sight::ALL;
    if (name == "causal") return Sight::CAUSAL;
    throw std::invalid_argument("sight: expected all, prefix or causal, got " + name);
}

Transformer transformer_of(const NamedArrays& arrays, const Sizes& sizes) {
    return Transformer(shape_of(sizes), weights_of(arrays));
}

constexpr std::int64_t MAX_WIDTH = 1 << 12, MAX_NGRAM = 1 << 10;  // of blocks, and of n-grams that are looked up
constexpr std::size_t MAX_TREE_NODES = 1 << 12;                   // each is a row of a pass
constexpr std::int64_t MAX_EXPANDED_NODES = 1 << 14;              // of a drafter that writes token after token

// Refuse parts of a drafter that do not fit its network, or the verifier that it reads.
void require_pair(const TransformerShape& shape, const TransformerShape& verifier, bool shares_encoder, bool shares_words,
                  Sight sight, std::int64_t mask, std::size_t copy_queries, std::size_t features, std::size_t heads,
                  std::size_t heads_bias) {
    const std::string width = std::to_string(shape.width);
    require(mask < static_cast<std::int64_t>(shape.target_vocabulary), "mask: expected a token of the drafter" + got(mask));
    require(shape.target_vocabulary == verifier.target_vocabulary, "drafter: expected the verifier's " +
                                                                       std::to_string(verifier.target_vocabulary) +
                                                                       " target tokens" + got(shape.target_vocabulary));
    require(shape.width == verifier.width || !(shares_encoder || shares_words || features > 0 || heads > 0),
            "drafter: expected the verifier's width " + std::to_string(verifier.width) + ", of which it shares a part" +
                got(shape.width));
    require(copy_queries == (mask < 0 ? shape.slots * shape.width : copy_queries),
            "copy_queries: expected [" + std::to_string(shape.slots) + "," + width + "] without a mask" + got(copy_queries));
    require(features == 0 || features == shape.width * shape.width,
            "features: expected [" + width + "," + width + "]" + got(features));
    require(heads == heads_bias * shape.width && heads_bias % shape.width == 0,
            "heads, heads_bias: expected [k " + width + "," + width + "] and [k " + width + "], got " + std::to_string(heads) +
                " and " + std::to_string(heads_bias) + " values");
    require(features == 0 || heads == 0, "features, heads: expected one of them");
    require(features == 0 || sight == Sight::CAUSAL, "features: expected sight causal");
}

struct BoundAggressive {
    std::shared_ptr<const Transformer> verifier;  // several pairs may share it
    std::optional<Transformer> network;
    std::optional<Drafter> drafter;

    Sources checked_sources(const Table& ids, const Ids& lengths, const std::vector<std::int64_t>& limits,
                            const TokenRules& token_rules, const DraftRules& rules, int threads) const {
        require_threads(threads);
        require_range("width", rules.width, std::int64_t{1}, MAX_WIDTH);
        require_range("tree_nodes", rules.tree_nodes, std::size_t{0}, MAX_TREE_NODES);
        require_range("ngram", rules.ngram, std::int64_t{1}, MAX_NGRAM);
        require_at_least("max_logprob_gap", rules.max_logprob_gap, 0.0F);
        for (const auto& [name, value] : {std::pair{"max_logprob_gap", static_cast<double>(rules.max_logprob_gap)},
                                          {"confidence", static_cast<double>(rules.confidence)},
                                          {"min_tokens_per_pass", rules.min_tokens_per_pass}})
            require_finite(name, value);
        require(rules.tree_nodes == 0 || (rules.tree_branches >= 1 && rules.top_k == 1 && !rules.adaptive),
                "tree_nodes: expected tree_branches of at least 1, top_k 1 and blocks that are not adaptive");
        require(rules.tree_nodes == 0 || (rules.proposals == Proposals::NETWORK && drafter.has_value()),
                "tree_nodes: expected 0 without a drafting network");
        if (rules.tree_nodes > 0 && drafter->autoregressive())
            require_range("width with tree_nodes and tree_branches", rules.width, std::int64_t{1},
                          std::max<std::int64_t>(1, MAX_EXPANDED_NODES / static_cast<std::int64_t>(rules.tree_branches)));
        require(rules.proposals != Proposals::NETWORK || !drafter.has_value() || !drafter->has_heads() ||
                    static_cast<std::size_t>(rules.width) * drafter->network.shape.width <= drafter->heads.outputs(),
                "width: expected at most the number of heads" + got(rules.width));
        require(lengths.size() == ids.shape(0) && limits.size() == ids.shape(0),
                "lengths, limits: expected one for each row of sources");
        require_limits(limits);
        require(rules.proposals != Proposals::NETWORK || drafter.has_value(),
                "proposals: expected lookup, jacobi or nothing without a drafter, got network");
        const bool reads_source = drafter.has_value() && (!drafter->shares_encoder || drafter->mask < 0);
        const auto common_size = [&](std::size_t TransformerShape::* member) {
            const std::size_t of_verifier = verifier->shape.*member;
            return network ? std::min(of_verifier, (*network).shape.*member) : of_verifier;
        };
        const auto slots = static_cast<std::int64_t>(common_size(&TransformerShape::slots));
        const std::size_t target_size = common_size(&TransformerShape::target_vocabulary);
        const std::size_t positions =
            reads_source ? common_size(&TransformerShape::source_positions) : verifier->shape.source_positions;
        const std::size_t source_size =
            reads_source ? common_size(&TransformerShape::source_vocabulary) : verifier->shape.source_vocabulary;
        require(rules.top_k >= 1 && rules.top_k <= target_size,
                "top_k: expected at most the vocabulary's " + std::to_string(target_size) + got(rules.top_k));
        require_ids("banned", token_rules.banned, target_size);
        require_ids("eos", std::array{token_rules.eos}, target_size);
        for (std::size_t row = 0; row < limits.size(); ++row)
            require(limits[row] <= slots,
                    "limits" + expected_at(row) + "at most " + std::to_string(slots) + " slots with codes" + got(limits[row]));
        return sources_of(ids, lengths, positions, source_size);
    }

    auto run(const Table& ids, const Ids& lengths, const Ids& limits, std::vector<std::vector<std::int64_t>> hints,
             const std::string& proposals, bool verify, std::int64_t width, bool adaptive, std::size_t tree_nodes,
             std::size_t tree_branches, std::size_t draft_shortlist_tokens, std::size_t draft_shortlist_links, float confidence,
             bool int8, std::int64_t ngram, std::size_t top_k, float max_logprob_gap, bool require_top1_eos,
             double min_tokens_per_pass, double alpha, bool gnmt, std::size_t shortlist_tokens, std::size_t shortlist_links,
             std::vector<std::int64_t> banned, std::int64_t bos, std::int64_t eos, std::int64_t min_tokens, int threads) const {
        const Proposals proposals_kind = proposals_of(proposals);
        const DraftRules rules{proposals_kind,
                               width,
                               adaptive,
                               tree_nodes,
                               tree_branches,
                               {draft_shortlist_tokens, draft_shortlist_links},
                               confidence,
                               int8,
                               ngram,
                               top_k,
                               max_logprob_gap,
                               require_top1_eos,
                               min_tokens_per_pass,
                               bos,
                               {shortlist_tokens, shortlist_links}};
        const TokenRules token_rules{std::move(banned), eos, min_tokens};
        const BeamOptions options = beam_options(1, 1, false, "exact", eos, 0, 1, alpha, gnmt);
        const std::vector<std::int64_t> max_lengths(view(limits).begin(), view(limits).end());
        const Sources sources = checked_sources(ids, lengths, max_lengths, token_rules, rules, threads);
        require(draft_shortlist_links == 0 ||
                    (drafter.has_value() && draft_shortlist_links <= drafter->network.lexicon.links && draft_shortlist_tokens > 0),
                "draft_shortlist_links: expected at most the number of links of the drafter's lexicon, and common tokens beside "
                "them, got " +
                    std::to_string(draft_shortlist_links));
        require_shortlist(verifier->lexicon, rules.verifier_shortlist, eos);
        require(proposals_kind != Proposals::LOOKUP || hints.size() == max_lengths.size(),
                "hints: expected one for each row of sources");
        for (const auto& hint : hints) require_ids("hints", hint, verifier->shape.target_vocabulary);
        require(verify || (drafter.has_value() && !drafter->has_heads()),
                "verify: expected true without a drafter, and for heads, which read the verifier");
        Aggressive result;
        {
            const nb::gil_scoped_release release;
            result = verify ? aggressive(*verifier, drafter ? &*drafter : nullptr, sources, max_lengths, hints, options,
                                         token_rules, rules, threads)
                            : draft_only(*verifier, *drafter, sources, max_lengths, options, token_rules, rules, threads);
        }
        const auto outcome = [](const AggressiveOutcome& one) {
            return std::tuple(one.score, one.tokens, one.steps, one.margin, one.num_drafted, one.num_accepted, one.fell_back,
                              one.proposed_by_slot, one.accepted_by_slot);
        };
        const AggressiveTimes& times = result.times;
        return std::tuple(mapped(result.outcomes, outcome),
                          std::tuple(times.encoder, times.drafter_encoder, times.drafter, times.verifier, times.rest));
    }
};

// Return a heap object, because the drafter refers to the network inside it. `beside`: a pair whose verifier, of the same arrays in
// the same precision, is used in place of another copy.
BoundAggressive* make(const NamedArrays& verifier, const Sizes& verifier_shape, const NamedArrays& drafter,
                      const Sizes& drafter_shape, bool shares_encoder, bool shares_words, const std::string& sight,
                      bool codes_in_layers, bool last_token, std::int64_t mask, const Vector<float>& copy_queries,
                      const Vector<float>& features, const Vector<float>& heads, const Vector<float>& heads_bias,
                      const Ids& common_tokens, const Table& linked_tokens, const Ids& verifier_common_tokens,
                      const Table& verifier_linked_tokens, const std::string& precision, const BoundAggressive* beside) {
    const Precision verifier_precision = precision_of(precision);
    const bool drafts = !drafter.empty();
    Lexicon verifier_lexicon = lexicon_of(verifier_common_tokens, verifier_linked_tokens, shape_of(verifier_shape));
    Lexicon lexicon = drafts ? lexicon_of(common_tokens, linked_tokens, shape_of(drafter_shape)) : Lexicon();
    const nb::gil_scoped_release release;
    auto bound = std::make_unique<BoundAggressive>();
    if (beside != nullptr) {
        bound->verifier = beside->verifier;
    } else {
        auto made = std::make_shared<Transformer>(transformer_of(verifier, verifier_shape));
        made->lexicon = std::move(verifier_lexicon);
        made->quantize(verifier_precision);
        bound->verifier = std::move(made);
    }
    if (!drafts) return bound.release();
    bound->network.emplace(transformer_of(drafter, drafter_shape));
    require_pair(bound->network->shape, bound->verifier->shape, shares_encoder, shares_words, sight_of(sight), mask,
                 copy_queries.size(), features.size(), heads.size(), heads_bias.size());
    const std::size_t width = bound->network->shape.width;
    bound->network->lexicon = std::move(lexicon);
    const bool shares_logits = shares_words && bound->verifier->logits_bias.empty();  // a drafter has no logits bias
    if (shares_logits) bound->network->vocabulary = PackedMatrix();
    Drafter& bound_drafter = bound->drafter.emplace(
        Drafter{*bound->network,
                shares_logits ? bound->verifier->vocabulary : bound->network->vocabulary,
                shares_encoder,
                sight_of(sight),
                codes_in_layers,
                last_token,
                mask,
                {copy_queries.data(), copy_queries.data() + copy_queries.size()},
                features.size() == 0 ? PackedMatrix() : PackedMatrix(features.data(), nullptr, width, width),
                heads.size() == 0 ? PackedMatrix() : PackedMatrix(heads.data(), heads_bias.data(), heads_bias.size(), width),
                rows_of(*bound->network, bound->network->lexicon.common_tokens),
                {},
                {}});
    for (const DecoderLayer& layer : bound->network->decoder) bound_drafter.int8_layers.emplace_back(layer, Precision::INT8);
    if (bound_drafter.has_features()) bound_drafter.int8_features = Int8Matrix(bound_drafter.features);
    Lexicon& drafter_lexicon = bound->network->lexicon;
    if (drafter_lexicon.links > 0)
        drafter_lexicon.quantize(bound_drafter.vocabulary);
    else
        drafter_lexicon.common_int8 = Int8Matrix(bound_drafter.common_rows);
    return bound.release();
}

}  // namespace

void bind_aggressive(nb::module_& module) {
    nb::class_<BoundAggressive>(module, "AggressiveTransformer")
        .def("run", &BoundAggressive::run, "sources"_a, "lengths"_a, "limits"_a, "hints"_a, nb::kw_only(), "proposals"_a,
             "verify"_a, "width"_a, "adaptive"_a, "tree_nodes"_a, "tree_branches"_a, "draft_shortlist_tokens"_a,
             "draft_shortlist_links"_a, "confidence"_a, "int8"_a, "ngram"_a, "top_k"_a, "max_logprob_gap"_a, "require_top1_eos"_a,
             "min_tokens_per_pass"_a, "alpha"_a, "gnmt"_a, "shortlist_tokens"_a, "shortlist_links"_a, "banned"_a, "bos"_a, "eos"_a,
             "min_tokens"_a, "threads"_a);
    module.def("make_aggressive", make, "verifier"_a, "verifier_shape"_a, "drafter"_a, "drafter_shape"_a, nb::kw_only(),
               "shares_encoder"_a, "shares_words"_a, "sight"_a, "codes_in_layers"_a, "last_token"_a, "mask"_a, "copy_queries"_a,
               "features"_a, "heads"_a, "heads_bias"_a, "common_tokens"_a, "linked_tokens"_a, "verifier_common_tokens"_a,
               "verifier_linked_tokens"_a, "precision"_a, "beside"_a = nb::none());
}

}  // namespace fewstep

#include "csrc/inference/aggressive/decoding.h"
#include "csrc/inference/network/shortlist.h"

#include <nanobind/stl/map.h>

#include <algorithm>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <span>

#include "bindings/arrays.h"
#include "bindings/inference/beam_options.h"
#include "bindings/bindings.h"
#include "bindings/inference/lexicon.h"
#include "bindings/inference/precision.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace fewstep {

namespace {

using Array = nb::ndarray<const float, nb::c_contig, nb::device::cpu>;
using Table = nb::ndarray<const std::int64_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Ids = Vector<std::int64_t>;
using Numbers = std::map<std::string, std::size_t>;  // of a shape, by name

std::string got(std::int64_t value) { return ", got " + std::to_string(value); }

Proposals proposals_of(const std::string& name) {
    if (name == "network") return Proposals::NETWORK;
    if (name == "lookup") return Proposals::LOOKUP;
    if (name == "nothing") return Proposals::NOTHING;
    throw std::invalid_argument("proposals: expected network, lookup or nothing, got " + name);
}

Sight sight_of(const std::string& name) {
    if (name == "prefix") return Sight::PREFIX;
    if (name == "all") return Sight::ALL;
    throw std::invalid_argument("sight: expected all or prefix, got " + name);
}

TransformerShape shape_of(const Numbers& numbers) {
    const auto at = [&](const char* name) { return numbers.at(name); };
    return {at("encoder_layers"), at("decoder_layers"), at("width"),        at("feed_forward"),     at("heads"),
            at("pre_norm") != 0,  at("source_words"),   at("target_words"), at("source_positions"), at("slots"), at("gelu") != 0};
}

Transformer transformer_of(const std::map<std::string, Array>& arrays, const Numbers& numbers) {
    Arrays floats;
    for (const auto& [name, array] : arrays) floats.emplace(name, array.data());
    return Transformer(shape_of(numbers), floats);
}

struct BoundAggressive {
    Transformer verifier;
    std::optional<Transformer> network;
    std::optional<Drafter> drafter;

    Sources sources_of(const Table& ids, const Ids& lengths, const std::vector<std::int64_t>& limits, const WordRules& words,
                       const DraftRules& rules, int threads) const {
        require(threads >= 1, "threads: expected at least 1" + got(threads));
        require(rules.width >= 1 && rules.ranks >= 1 && rules.ngram >= 1 && rules.gap >= 0.0F, "expected width, ranks and ngram of at least 1, gap of at least 0");
        require(lengths.size() == ids.shape(0) && limits.size() == ids.shape(0), "lengths, limits: expected one for each row of sources");
        require_limits(limits);
        require(rules.proposals != Proposals::NETWORK || drafter.has_value(), "proposals: expected lookup or nothing without a drafter, got network");
        const bool reads_itself = drafter.has_value() && (!drafter->shares_encoder || drafter->mask < 0);
        const auto least = [&](std::size_t TransformerShape::* member) {
            const std::size_t own = verifier.shape.*member;
            return static_cast<std::int64_t>(network ? std::min(own, (*network).shape.*member) : own);
        };
        const std::int64_t slots = least(&TransformerShape::slots), words_written = least(&TransformerShape::target_words);
        const std::int64_t positions = reads_itself ? least(&TransformerShape::source_positions) : static_cast<std::int64_t>(verifier.shape.source_positions);
        const std::int64_t words_read = reads_itself ? least(&TransformerShape::source_words) : static_cast<std::int64_t>(verifier.shape.source_words);
        require(static_cast<std::int64_t>(rules.ranks) <= words_written, "ranks: expected at most the vocabulary's " + std::to_string(words_written) + got(static_cast<std::int64_t>(rules.ranks)));
        for (const std::int64_t word : words.banned)
            require(word >= 0 && word < words_written, "banned: expected ids below " + std::to_string(words_written) + got(word));
        require(words.eos >= 0 && words.eos < words_written, "eos: expected an id below " + std::to_string(words_written) + got(words.eos));
        const auto longest = std::min(static_cast<std::int64_t>(ids.shape(1)), positions);
        for (std::size_t row = 0; row < lengths.size(); ++row) {
            const std::string at = "[" + std::to_string(row) + "]: expected ";
            const std::int64_t length = lengths.data()[row];
            require(length >= 1 && length <= longest, "lengths" + at + "1 to " + std::to_string(longest) + got(length));
            require(limits[row] <= slots, "limits" + at + "at most " + std::to_string(slots) + " slots with codes" + got(limits[row]));
            for (std::int64_t place = 0; place < length; ++place) {
                const std::int64_t word = ids.data()[row * ids.shape(1) + static_cast<std::size_t>(place)];
                require(word >= 0 && word < words_read, "sources" + at + "ids below " + std::to_string(words_read) + got(word));
            }
        }
        Sources sources{ids.data(), ids.shape(1), {view(lengths).begin(), view(lengths).end()}, std::vector<std::size_t>(ids.shape(0))};
        std::iota(sources.rows.begin(), sources.rows.end(), std::size_t{0});
        return sources;
    }

    nb::tuple run(const Table& ids, const Ids& lengths, const Ids& limits, std::vector<std::vector<std::int64_t>> hints,
                  const std::string& proposals, bool verify, std::int64_t width, bool adaptive, std::size_t words, std::size_t links, float confidence,
                  bool bytes, std::int64_t ngram, std::size_t ranks, float gap, bool strict_end, double worthwhile, double alpha, bool gnmt, std::size_t shortlist_words,
                  std::size_t shortlist_links, std::vector<std::int64_t> banned,
                  std::int64_t bos, std::int64_t eos, std::int64_t min_tokens, int threads) const {
        const Proposals who = proposals_of(proposals);
        const DraftRules rules{who, width, adaptive, {words, links}, confidence, bytes, ngram, ranks, gap, strict_end, worthwhile, bos, {shortlist_words, shortlist_links}};
        const WordRules allowed{std::move(banned), eos, min_tokens};
        const BeamOptions options = beam_options(1, 1, false, "exact", eos, 0, 1, alpha, gnmt);
        const std::vector<std::int64_t> longest(view(limits).begin(), view(limits).end());
        const Sources sources = sources_of(ids, lengths, longest, allowed, rules, threads);
        require(links == 0 || (drafter.has_value() && links <= drafter->network.lexicon.links && words > 0),
                "links: expected at most as many as the drafter knows of each word, beside common words, got " + std::to_string(links));
        require_shortlist(verifier.lexicon, rules.verified, eos);
        require(who != Proposals::LOOKUP || hints.size() == longest.size(), "hints: expected one for each row of sources");
        for (const auto& hint : hints)
            for (const std::int64_t word : hint)
                require(word >= 0 && word < static_cast<std::int64_t>(verifier.shape.target_words), "hints: expected ids of the target's vocabulary" + got(word));
        require(verify || drafter.has_value(), "verify: expected true without a drafter");
        Aggressive found;
        {
            const nb::gil_scoped_release release;
            found = verify ? aggressive(verifier, drafter ? &*drafter : nullptr, sources, longest, hints, options, allowed, rules, threads)
                           : draft_only(verifier, *drafter, sources, longest, options, allowed, rules, threads);
        }
        nb::list outcomes;
        for (AggressiveOutcome& one : found.outcomes)
            outcomes.append(nb::make_tuple(one.score, one.tokens, one.steps, one.margin, one.drafted, one.accepted, one.fell_back, one.tried, one.kept));
        const AggressiveTimes& times = found.times;
        return nb::make_tuple(outcomes, nb::make_tuple(times.encoder, times.drafter_encoder, times.drafter, times.verifier, times.rest));
    }
};

// In the heap and never moved: the drafter refers to its network there.
BoundAggressive* make(const std::map<std::string, Array>& verifier, const Numbers& verifier_shape,
                      const std::map<std::string, Array>& drafter, const Numbers& drafter_shape, bool shares_encoder,
                      bool shares_words, const std::string& sight, bool codes_in_layers, bool last_token, std::int64_t mask,
                      const Vector<float>& copy_queries, const Vector<float>& features, const Ids& common_words, const LinkedWords& linked_words,
                      const Ids& verifier_common_words, const LinkedWords& verifier_linked_words, const std::string& precision) {
    const Precision verifies = precision_of(precision);
    const bool drafts = !drafter.empty();
    require(!drafts || mask < static_cast<std::int64_t>(drafter_shape.at("target_words")), "mask: expected a word of the drafter" + got(mask));
    Lexicon own = lexicon_of(verifier_common_words, verifier_linked_words, shape_of(verifier_shape));
    Lexicon lexicon = drafts ? lexicon_of(common_words, linked_words, shape_of(drafter_shape)) : Lexicon();
    const nb::gil_scoped_release release;
    auto made = std::make_unique<BoundAggressive>(BoundAggressive{transformer_of(verifier, verifier_shape), std::nullopt, std::nullopt});
    made->verifier.lexicon = std::move(own);
    made->verifier.narrow(verifies);
    if (!drafts) return made.release();
    made->network.emplace(transformer_of(drafter, drafter_shape));
    const std::size_t width = made->network->shape.width;
    made->network->lexicon = std::move(lexicon);
    if (shares_words) made->network->vocabulary = PackedMatrix();
    Drafter& drafting = made->drafter.emplace(
        Drafter{*made->network, shares_words ? made->verifier.vocabulary : made->network->vocabulary, shares_encoder,
                sight_of(sight), codes_in_layers, last_token, mask, {copy_queries.data(), copy_queries.data() + copy_queries.size()},
                features.size() == 0 ? PackedMatrix() : PackedMatrix(features.data(), nullptr, width, width),
                rows_of(*made->network, made->network->lexicon.common_words), {}, {}});
    for (const DecoderLayer& layer : made->network->decoder) drafting.layer_bytes.emplace_back(layer, Precision::BYTES);
    if (drafting.autoregressive()) drafting.feature_bytes = ByteMatrix(drafting.features);
    Lexicon& words = made->network->lexicon;
    if (words.links > 0) words.narrow(drafting.vocabulary);
    else words.common_bytes = ByteMatrix(drafting.common);
    return made.release();
}

}  // namespace

void bind_aggressive(nb::module_& module) {
    nb::class_<BoundAggressive>(module, "AggressiveTransformer")
        .def("run", &BoundAggressive::run, "sources"_a, "lengths"_a, "limits"_a, "hints"_a, nb::kw_only(), "proposals"_a, "verify"_a,
             "width"_a, "adaptive"_a, "words"_a, "links"_a, "confidence"_a, "bytes"_a, "ngram"_a, "ranks"_a, "gap"_a, "strict_end"_a, "worthwhile"_a, "alpha"_a, "gnmt"_a,
             "shortlist_words"_a, "shortlist_links"_a, "banned"_a, "bos"_a, "eos"_a, "min_tokens"_a, "threads"_a);
    module.def("make_aggressive", make, "verifier"_a, "verifier_shape"_a, "drafter"_a, "drafter_shape"_a, nb::kw_only(), "shares_encoder"_a,
               "shares_words"_a, "sight"_a, "codes_in_layers"_a, "last_token"_a, "mask"_a, "copy_queries"_a, "features"_a, "common_words"_a, "linked_words"_a,
               "verifier_common_words"_a, "verifier_linked_words"_a, "precision"_a);
}

}  // namespace fewstep

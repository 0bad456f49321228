#include "csrc/inference/dag/beam.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <set>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>

namespace fewstep {

// An integer of the same order as the score.
inline std::int32_t ordered_key(float score) {
    const auto bits = std::bit_cast<std::int32_t>(score);
    return bits ^ (bits >> 31 & 0x7fffffff);
}

struct TopKThreshold {
    std::int32_t key;     // the top k have this key or a larger one,
    std::int64_t excess;  // and this many more elements do
};

// Return the largest such key; 1 <= count <= number of keys. Bisects the range of keys; each step counts, without branches, the
// keys above its middle.
inline TopKThreshold top_k_threshold(std::span<const std::int32_t> keys, std::int64_t count) {
    const auto [lowest, highest] = std::ranges::minmax(keys);
    std::int64_t low = lowest, high = highest;
    auto found = static_cast<std::int64_t>(keys.size());
    while (low < high && found > count) {
        const std::int64_t middle = low + (high - low + 1) / 2;
        const auto bound = static_cast<std::int32_t>(middle);
        std::int32_t above = 0;
        for (const std::int32_t key : keys) above += key >= bound;
        if (above >= count) {
            low = middle;
            found = above;
        } else {
            high = middle - 1;
        }
    }
    return {static_cast<std::int32_t>(low), found - count};
}

namespace {

constexpr std::int32_t MIN_NODE_LIMIT = 1 << 16;
constexpr std::size_t MAX_PENDING = std::size_t{1} << 24, MAX_NODES = std::size_t{1} << 23;  // 16 and some 60 bytes each

}  // namespace

std::vector<DagHypothesis> DagBeam::search(const DagCandidates& sentence, const NgramScorer* ngram) {
    ngram_ = options_.ngram_weight > 0 ? ngram : nullptr;
    if (sentence.vertices < 2) return {};
    reset(sentence.vertices);
    for (Index vertex = 0; vertex < last_; ++vertex) {
        if (queues_.empty(vertex)) continue;
        if (tree_.size() > node_limit_) drop_unreachable();
        read_transitions(sentence, vertex);
        if (!transitions_.empty()) {
            collect_entries(vertex);
            prune();
            require_space();
            for (const BeamEntry& entry : entries_) expand(entry);
        }
        queues_.clear(vertex);
    }
    collect_entries(last_);
    return best_outputs();
}

void DagBeam::reset(std::int64_t vertices) {
    last_ = static_cast<Index>(vertices - 1);
    node_limit_ = MIN_NODE_LIMIT;
    tree_.reset(ngram_ ? ngram_->begin() : NgramModel::EMPTY);
    queues_.reset(vertices);
    queues_.push(0, {1, 0, 0});
    for (auto length = static_cast<std::int64_t>(penalties_.size()); length <= vertices; ++length) {
        const double counted = static_cast<double>(std::max<std::int64_t>(length + options_.count_begin, 1));
        penalties_.push_back(std::pow(counted, -options_.length_penalty));
    }
}

// Drop the prefixes that have no probability at a later vertex and cannot receive any.
void DagBeam::drop_unreachable() {
    const auto count = static_cast<std::size_t>(tree_.size());
    std::vector<char> retained(count, 0), growing(count, 0);
    for (Index vertex = 0; vertex <= last_; ++vertex) {
        queues_.for_each(vertex, [&](const DagMessage& message) { (vertex < last_ ? growing : retained)[message.node] = 1; });
    }
    const std::vector<Index> indices = tree_.compact(std::move(retained), std::move(growing));
    for (Index vertex = 0; vertex <= last_; ++vertex) {
        queues_.for_each(vertex, [&](DagMessage& message) { message.node = indices[message.node]; });
    }
    node_limit_ = std::max(MIN_NODE_LIMIT, 2 * tree_.size());
}

void DagBeam::read_transitions(const DagCandidates& sentence, std::int64_t vertex) {
    valid_candidates(sentence, vertex, options_.candidates, valid_);
    transitions_.clear();
    for (const DagCandidate& one : valid_) {
        transitions_.push_back({scaled_exp(one.score), std::exp(one.score), one.next, one.token});
    }
}

// Throws std::invalid_argument if the prefixes of a vertex may take more than the memory of a search.
void DagBeam::require_space() const {
    const std::size_t added = entries_.size() * transitions_.size();
    if (static_cast<std::size_t>(tree_.size()) + added > MAX_NODES || queues_.messages() + added > MAX_PENDING)
        throw std::invalid_argument("beam_size: expected at most " + std::to_string(MAX_NODES) +
                                    " prefixes that are alive; use fewer prefixes or candidates");
}

// Merge the messages to a vertex into one entry per prefix.
void DagBeam::collect_entries(Index vertex) {
    entries_.clear();
    queues_.for_each(vertex, [&](const DagMessage& message) {
        PrefixTree::Node& node = tree_[message.node];
        if (node.entry < static_cast<Index>(entries_.size()) && entries_[node.entry].node == message.node) {
            BeamEntry& entry = entries_[node.entry];
            add_scaled(entry.value, entry.exponent, message.value, message.exponent);
            return;
        }
        node.entry = static_cast<Index>(entries_.size());
        const double log_prob = scaled_log(node.value, node.exponent) + options_.ngram_weight * node.ngram;
        const std::int32_t key = ordered_key(static_cast<float>(log_prob * penalties_[node.length]));
        entries_.push_back({message.value, message.exponent, key, message.node, node.length});
    });
}

void DagBeam::prune() {
    if (static_cast<std::int64_t>(entries_.size()) > options_.beams_per_length) prune_lengths();
    if (static_cast<std::int64_t>(entries_.size()) <= options_.beam_size) return;
    keys_.clear();
    for (const BeamEntry& entry : entries_) keys_.push_back(entry.key);
    const RankThreshold all = rank_threshold(keys_, options_.beam_size, PrefixTree::NONE);
    std::erase_if(entries_, [&](const BeamEntry& entry) { return !all.passes(entry); });
}

void DagBeam::prune_lengths() {
    Index longest = 0;
    for (const BeamEntry& entry : entries_) longest = std::max(longest, entry.length);
    ends_.assign(static_cast<std::size_t>(longest) + 2, 0);
    for (const BeamEntry& entry : entries_) ++ends_[entry.length + 1];
    for (Index length = 0; length <= longest; ++length) ends_[length + 1] += ends_[length];
    keys_.resize(entries_.size());
    for (const BeamEntry& entry : entries_) keys_[ends_[entry.length]++] = entry.key;
    thresholds_.assign(static_cast<std::size_t>(longest) + 1,
                       {std::numeric_limits<std::int32_t>::min(), std::numeric_limits<Index>::max()});
    std::size_t begin = 0;
    bool all_kept = true;
    for (Index length = 0; length <= longest; ++length) {
        const std::span<const std::int32_t> keys(keys_.data() + begin, ends_[length] - begin);
        begin = ends_[length];
        if (static_cast<std::int64_t>(keys.size()) <= options_.beams_per_length) continue;
        thresholds_[length] = rank_threshold(keys, options_.beams_per_length, length);
        all_kept = false;
    }
    if (all_kept) return;
    std::erase_if(entries_, [&](const BeamEntry& entry) { return !thresholds_[entry.length].passes(entry); });
}

// The threshold that the best `count` entries pass, among those of one length or (NONE) among all. The earlier node wins a tie.
DagBeam::RankThreshold DagBeam::rank_threshold(std::span<const std::int32_t> keys, std::int64_t count, Index length) {
    const TopKThreshold threshold = top_k_threshold(keys, count);
    if (threshold.excess == 0) return {threshold.key, std::numeric_limits<Index>::max()};
    tied_.clear();
    for (const BeamEntry& entry : entries_) {
        if (entry.key == threshold.key && (length == PrefixTree::NONE || entry.length == length)) tied_.push_back(entry.node);
    }
    const auto last = tied_.end() - 1 - threshold.excess;
    std::nth_element(tied_.begin(), last, tied_.end());
    return {threshold.key, *last};
}

void DagBeam::expand(const BeamEntry& from) {
    const Index first_new = tree_.size();
    if (options_.rules.any()) tree_.read(from.node, history_);
    double probability_followed = 0;
    bool any = false;
    for (const Transition& transition : transitions_) {
        if (options_.top_p < 1 && probability_followed >= options_.top_p) break;
        if (banned(transition)) continue;
        extend(from, transition, first_new);
        probability_followed += transition.probability;
        any = true;
    }
    if (!any) extend(from, transitions_.front(), first_new);
    tree_.close_children(from.node, first_new);
}

bool DagBeam::banned(const Transition& transition) const {
    return options_.rules.any() && transition.next != last_ && repeats(options_.rules, history_, transition.token);
}

void DagBeam::extend(const BeamEntry& from, const Transition& transition, Index first_new) {
    const ScaledFloat scaled = ScaledFloat{from.value, from.exponent} * transition.scaled;
    Index node = from.node;
    if (transition.next != last_) {
        node = tree_.child(from.node, transition.token, first_new, ngram_);
        add_scaled(tree_[node].value, tree_[node].exponent, scaled.value, scaled.exponent);
    }
    queues_.push(transition.next, {scaled.value, scaled.exponent, node});
}

std::vector<DagHypothesis> DagBeam::best_outputs() {
    struct Output {
        double score;
        Index node;
        bool operator<(const Output& other) const { return score < other.score || (score == other.score && node > other.node); }
    };
    std::vector<Output> outputs;
    for (const BeamEntry& entry : entries_) {
        const PrefixTree::Node& node = tree_[entry.node];
        double log_prob = scaled_log(entry.value, entry.exponent);
        if (ngram_) {
            NgramState after;
            log_prob += options_.ngram_weight * (node.ngram + ngram_->model().score(node.state, NGRAM_END, after));
        }
        outputs.push_back({log_prob * penalties_[node.length + 1], entry.node});
    }
    std::vector<DagHypothesis> best;
    std::set<std::vector<std::int64_t>> known;
    std::make_heap(outputs.begin(), outputs.end());
    while (!outputs.empty() && static_cast<std::int64_t>(best.size()) < options_.n_best) {
        std::pop_heap(outputs.begin(), outputs.end());
        tree_.read(outputs.back().node, history_);
        std::vector<std::int64_t> ids(history_.begin(), history_.end());
        if (options_.deduplicate) ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
        if (known.insert(ids).second) best.push_back({outputs.back().score, std::move(ids)});
        outputs.pop_back();
    }
    return best;
}

}  // namespace fewstep

#include "csrc/inference/dag/beam.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <utility>

#include "csrc/base/top_k_threshold.h"

namespace fewstep {

namespace {

constexpr std::int32_t LEAST_ROOM = 1 << 16;

}  // namespace

std::vector<DagHypothesis> DagBeam::search(const DagCandidates& sentence, const NgramScorer* ngram) {
    ngram_ = options_.ngram_weight > 0 ? ngram : nullptr;
    if (sentence.vertices < 2) return {};
    start(sentence.vertices);
    for (Index vertex = 0; vertex < last_; ++vertex) {
        if (inboxes_.empty(vertex)) continue;
        if (tree_.size() > room_) forget();
        read_steps(sentence, vertex);
        if (!steps_.empty()) {
            arrive(vertex);
            prune();
            for (const Arrival& arrival : arrivals_) expand(arrival);
        }
        inboxes_.clear(vertex);
    }
    arrive(last_);
    return best_outputs();
}

void DagBeam::start(std::int64_t vertices) {
    last_ = static_cast<Index>(vertices - 1);
    room_ = LEAST_ROOM;
    tree_.start(ngram_ ? ngram_->begin() : NgramModel::EMPTY);
    inboxes_.start(vertices);
    inboxes_.send(0, {1, 0, 0});
    for (auto length = static_cast<std::int64_t>(penalties_.size()); length <= vertices; ++length) {
        const double counted = static_cast<double>(std::max<std::int64_t>(length + options_.count_begin, 1));
        penalties_.push_back(std::pow(counted, -options_.length_penalty));
    }
}

// Drops the prefixes that hold no probability at a vertex still to come and can get none any more.
void DagBeam::forget() {
    const auto count = static_cast<std::size_t>(tree_.size());
    std::vector<char> held(count, 0), grows(count, 0);
    for (Index vertex = 0; vertex <= last_; ++vertex) {
        inboxes_.for_each(vertex, [&](const DagMessage& message) { (vertex < last_ ? grows : held)[message.node] = 1; });
    }
    const std::vector<Index> indices = tree_.keep(std::move(held), std::move(grows));
    for (Index vertex = 0; vertex <= last_; ++vertex) {
        inboxes_.for_each(vertex, [&](DagMessage& message) { message.node = indices[message.node]; });
    }
    room_ = std::max(LEAST_ROOM, 2 * tree_.size());
}

void DagBeam::read_steps(const DagCandidates& sentence, std::int64_t vertex) {
    possible_candidates(sentence, vertex, options_.candidates, possible_);
    steps_.clear();
    for (const DagCandidate& one : possible_) {
        steps_.push_back({mass_of_log(one.score), std::exp(one.score), one.next, one.token});
    }
}

// Makes arrivals of the messages to a vertex: one for each prefix.
void DagBeam::arrive(Index vertex) {
    arrivals_.clear();
    inboxes_.for_each(vertex, [&](const DagMessage& message) {
        PrefixTree::Node& node = tree_[message.node];
        if (node.place < static_cast<Index>(arrivals_.size()) && arrivals_[node.place].node == message.node) {
            Arrival& arrival = arrivals_[node.place];
            add_mass(arrival.value, arrival.exponent, message.value, message.exponent);
            return;
        }
        node.place = static_cast<Index>(arrivals_.size());
        const double log_prob = log_mass(node.value, node.exponent) + options_.ngram_weight * node.ngram;
        const std::int32_t key = ordered(static_cast<float>(log_prob * penalties_[node.length]));
        arrivals_.push_back({message.value, message.exponent, key, message.node, node.length});
    });
}

void DagBeam::prune() {
    if (static_cast<std::int64_t>(arrivals_.size()) > options_.beams_per_length) prune_lengths();
    if (static_cast<std::int64_t>(arrivals_.size()) <= options_.beam_size) return;
    keys_.clear();
    for (const Arrival& arrival : arrivals_) keys_.push_back(arrival.key);
    const Limit all = limit(keys_, options_.beam_size, PrefixTree::NONE);
    std::erase_if(arrivals_, [&](const Arrival& arrival) { return !all.passes(arrival); });
}

void DagBeam::prune_lengths() {
    Index longest = 0;
    for (const Arrival& arrival : arrivals_) longest = std::max(longest, arrival.length);
    ends_.assign(static_cast<std::size_t>(longest) + 2, 0);
    for (const Arrival& arrival : arrivals_) ++ends_[arrival.length + 1];
    for (Index length = 0; length <= longest; ++length) ends_[length + 1] += ends_[length];
    keys_.resize(arrivals_.size());
    for (const Arrival& arrival : arrivals_) keys_[ends_[arrival.length]++] = arrival.key;
    limits_.assign(static_cast<std::size_t>(longest) + 1,
                   {std::numeric_limits<std::int32_t>::min(), std::numeric_limits<Index>::max()});
    std::size_t begin = 0;
    bool all_pass = true;
    for (Index length = 0; length <= longest; ++length) {
        const std::span<const std::int32_t> keys(keys_.data() + begin, ends_[length] - begin);
        begin = ends_[length];
        if (static_cast<std::int64_t>(keys.size()) <= options_.beams_per_length) continue;
        limits_[length] = limit(keys, options_.beams_per_length, length);
        all_pass = false;
    }
    if (all_pass) return;
    std::erase_if(arrivals_, [&](const Arrival& arrival) { return !limits_[arrival.length].passes(arrival); });
}

// What the best `count` of some arrivals pass: those of one length, or (NONE) of all. The earlier of equal ones pass.
DagBeam::Limit DagBeam::limit(std::span<const std::int32_t> keys, std::int64_t count, Index length) {
    const Cut cut = cut_at(keys, count);
    if (cut.excess == 0) return {cut.key, std::numeric_limits<Index>::max()};
    tied_.clear();
    for (const Arrival& arrival : arrivals_) {
        if (arrival.key == cut.key && (length == PrefixTree::NONE || arrival.length == length)) tied_.push_back(arrival.node);
    }
    const auto last = tied_.end() - 1 - cut.excess;
    std::nth_element(tied_.begin(), last, tied_.end());
    return {cut.key, *last};
}

void DagBeam::expand(const Arrival& from) {
    const Index first_new = tree_.size();
    if (options_.rules.any()) tree_.read(from.node, history_);
    double followed = 0;
    bool any = false;
    for (const Step& step : steps_) {
        if (options_.top_p < 1 && followed >= options_.top_p) break;
        if (banned(step)) continue;
        follow(from, step, first_new);
        followed += step.probability;
        any = true;
    }
    if (!any) follow(from, steps_.front(), first_new);
    tree_.close_brood(from.node, first_new);
}

bool DagBeam::banned(const Step& step) const {
    return options_.rules.any() && step.next != last_ && repeats(options_.rules, history_, step.token);
}

void DagBeam::follow(const Arrival& from, const Step& step, Index first_new) {
    const Mass mass = Mass{from.value, from.exponent} * step.mass;
    Index node = from.node;
    if (step.next != last_) {
        node = tree_.child(from.node, step.token, first_new, ngram_);
        add_mass(tree_[node].value, tree_[node].exponent, mass.value, mass.exponent);
    }
    inboxes_.send(step.next, {mass.value, mass.exponent, node});
}

std::vector<DagHypothesis> DagBeam::best_outputs() {
    struct Output {
        double score;
        Index node;
        bool operator<(const Output& other) const { return score < other.score || (score == other.score && node > other.node); }
    };
    std::vector<Output> outputs;
    for (const Arrival& arrival : arrivals_) {
        const PrefixTree::Node& node = tree_[arrival.node];
        double log_prob = log_mass(arrival.value, arrival.exponent);
        if (ngram_) {
            NgramState after;
            log_prob += options_.ngram_weight * (node.ngram + ngram_->model().score(node.state, NGRAM_END, after));
        }
        outputs.push_back({log_prob * penalties_[node.length + 1], arrival.node});
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

#include "csrc/inference/parallel/ctc_beam.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <string>

namespace fewstep {

namespace {

constexpr double NEVER = -std::numeric_limits<double>::infinity();
constexpr std::int32_t NONE = -1, ROOT = 0;
constexpr std::size_t MAX_GROWN = std::size_t{1} << 22, MAX_NODES = std::size_t{1} << 23;  // prefixes; some 100 bytes each

double add_logs(double one, double other) {
    const double high = std::max(one, other), low = std::min(one, other);
    return low == NEVER ? high : high + std::log1p(std::exp(low - high));
}

// What is not a number has no order, and would lead a sort out of its range.
double comparable(double score) { return std::isnan(score) ? NEVER : score; }

std::uint64_t child_key(std::int32_t parent, std::int32_t token) {
    return static_cast<std::uint64_t>(static_cast<std::uint32_t>(parent)) << 32 | static_cast<std::uint32_t>(token);
}

}  // namespace

std::vector<CtcHypothesis> CtcBeam::search(const CtcSlots& sentence, const NgramScorer* ngram) {
    ngram_ = ngram;
    reset();
    for (std::int64_t slot = 0; slot < sentence.slots; ++slot) {
        read_tokens(sentence, slot);
        extend(sentence.blanks[slot]);
        prune();
        keep();
    }
    return best_outputs();
}

void CtcBeam::reset() {
    const NgramState begin = ngram_ ? ngram_->begin() : NgramModel::EMPTY;
    nodes_.assign(1, {NONE, NONE, 0, begin, 0});
    children_.clear();
    entry_at_.assign(1, NONE);
    beam_.assign(1, {ROOT, NONE, NONE, 0, 0, NEVER, 0, 0, 0, begin});
}

// The tokens of a slot by id; the probabilities of equal ones are added up.
void CtcBeam::read_tokens(const CtcSlots& sentence, std::int64_t slot) {
    tokens_.clear();
    for (std::int64_t at = slot * sentence.width; at < (slot + 1) * sentence.width; ++at) {
        if (!(sentence.scores[at] > NEVER)) continue;
        const std::int64_t id = sentence.token_ids[at];
        if (id < 0 || id >= sentence.vocabulary) {
            throw std::invalid_argument("token_ids: expected 0 to " + std::to_string(sentence.vocabulary - 1) + ", got " +
                                        std::to_string(id));
        }
        tokens_.push_back({static_cast<Index>(id), sentence.scores[at]});
    }
    std::stable_sort(tokens_.begin(), tokens_.end(), [](const Token& one, const Token& other) { return one.id < other.id; });
    std::size_t kept = 0;
    for (std::size_t at = 0; at < tokens_.size(); ++at) {
        if (kept > 0 && tokens_[kept - 1].id == tokens_[at].id) {
            tokens_[kept - 1].score = add_logs(tokens_[kept - 1].score, tokens_[at].score);
        } else {
            tokens_[kept++] = tokens_[at];
        }
    }
    tokens_.resize(kept);
}

void CtcBeam::extend(double blank) {
    grown_.clear();
    if (beam_.size() * (tokens_.size() + 1) > MAX_GROWN || nodes_.size() > MAX_NODES)
        throw std::invalid_argument("beam_size: expected at most " + std::to_string(MAX_GROWN) + " prefixes of a slot and " +
                                    std::to_string(MAX_NODES) + " in all; use fewer prefixes or tokens");
    grown_.reserve(beam_.size() * (tokens_.size() + 1));
    for (const Entry& from : beam_) {
        if (blank > NEVER) {
            Entry& same = entry_of(from.node);
            same.blank = add_logs(same.blank, from.total + blank);
        }
        for (const Token& token : tokens_) extend_by(from, token);
    }
    for (Entry& entry : grown_) rank(entry);
}

void CtcBeam::extend_by(const Entry& from, const Token& token) {
    const bool repeats = token.id == from.token;
    if (const double again = from.last + token.score; repeats && again > NEVER) {
        Entry& same = entry_of(from.node);
        same.last = add_logs(same.last, again);
    }
    if (const double next = (repeats ? from.blank : from.total) + token.score; next > NEVER) {
        Entry& child = child_of(from, token.id);
        child.last = add_logs(child.last, next);
    }
}

// The grown entry of a node, which is added if it is missing.
CtcBeam::Entry& CtcBeam::entry_of(Index node) {
    Index& at = entry_at_[static_cast<std::size_t>(node)];
    if (at == NONE) {
        at = static_cast<Index>(grown_.size());
        const Node& prefix = nodes_[static_cast<std::size_t>(node)];
        grown_.push_back(
            {node, prefix.parent, prefix.token, prefix.length, NEVER, NEVER, NEVER, NEVER, prefix.ngram, prefix.state});
    }
    return grown_[static_cast<std::size_t>(at)];
}

CtcBeam::Entry& CtcBeam::child_of(const Entry& from, Index token) {
    if (const Index node = find(from.node, token); node != NONE) return entry_of(node);
    Entry child{NONE, from.node, token, from.length + 1, NEVER, NEVER, NEVER, NEVER, 0, NgramModel::EMPTY};
    if (ngram_) child.ngram = from.ngram + ngram_->score(from.state, static_cast<std::uint32_t>(token), child.state);
    return grown_.emplace_back(child);
}

void CtcBeam::rank(Entry& entry) const {
    entry.total = add_logs(entry.blank, entry.last);
    entry.rank = comparable(entry.total + (options_.ngram_weight * entry.ngram + options_.token_bonus * entry.length));
}

void CtcBeam::prune() {
    for (const Entry& entry : grown_) {
        if (entry.node != NONE) entry_at_[static_cast<std::size_t>(entry.node)] = NONE;
    }
    if (static_cast<std::int64_t>(grown_.size()) <= options_.beam_size) return;
    const auto end = grown_.begin() + options_.beam_size;
    std::nth_element(grown_.begin(), end, grown_.end(),
                     [this](const Entry& one, const Entry& other) { return is_better(one, other); });
    grown_.erase(end, grown_.end());
}

// Make the grown entries the beam, with nodes for new prefixes.
void CtcBeam::keep() {
    beam_.swap(grown_);
    for (Entry& entry : beam_) {
        if (entry.node != NONE) continue;
        entry.node = static_cast<Index>(nodes_.size());
        nodes_.push_back({entry.parent, entry.token, entry.length, entry.state, entry.ngram});
        entry_at_.push_back(NONE);
        children_.emplace(child_key(entry.parent, entry.token), entry.node);
    }
}

CtcBeam::Index CtcBeam::find(Index parent, Index token) const {
    const auto found = children_.find(child_key(parent, token));
    return found == children_.end() ? NONE : found->second;
}

bool CtcBeam::is_better(const Entry& one, const Entry& other) const {
    return one.rank != other.rank ? one.rank > other.rank : ids_of(one) < ids_of(other);
}

std::vector<std::int64_t> CtcBeam::ids_of(const Entry& entry) const {
    std::vector<std::int64_t> ids(static_cast<std::size_t>(entry.length));
    Index token = entry.token, parent = entry.parent;
    for (std::size_t at = ids.size(); at-- > 0;) {
        ids[at] = token;
        const Node& node = nodes_[static_cast<std::size_t>(parent)];
        token = node.token;
        parent = node.parent;
    }
    return ids;
}

std::vector<CtcHypothesis> CtcBeam::best_outputs() {
    std::vector<CtcHypothesis> outputs;
    for (const Entry& entry : beam_) {
        double score = entry.total + (options_.ngram_weight * entry.ngram + options_.token_bonus * entry.length);
        if (ngram_) {
            NgramState after;
            score += options_.ngram_weight * ngram_->model().score(entry.state, NGRAM_END, after);
        }
        outputs.push_back({comparable(score / std::pow(entry.length + 1, options_.length_penalty)), ids_of(entry)});
    }
    std::sort(outputs.begin(), outputs.end(), [](const CtcHypothesis& one, const CtcHypothesis& other) {
        return one.score != other.score ? one.score > other.score : one.ids < other.ids;
    });
    if (static_cast<std::int64_t>(outputs.size()) > options_.n_best) outputs.resize(static_cast<std::size_t>(options_.n_best));
    return outputs;
}

}  // namespace fewstep

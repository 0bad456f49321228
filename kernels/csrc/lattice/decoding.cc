#include "csrc/lattice/decoding.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <memory>

#include "csrc/base/vectors.h"
#include "csrc/candidates/lookup.h"

namespace fewstep {

namespace {

constexpr std::size_t STEP = LANES;
constexpr float NONE = -std::numeric_limits<float>::infinity();
constexpr std::size_t ENCODED_TOGETHER = 48;  // words at least, where there are more sentences: products of few rows are slow
constexpr std::size_t SCORED_TOGETHER = 32;   // rows at least
constexpr std::size_t PRUNED_TOGETHER = 8;    // slots at least
constexpr std::size_t TILE_PANELS = 8;        // of the vocabulary, whose logits are held at a time

std::size_t rounded_up(std::size_t count) { return (count + STEP - 1) / STEP * STEP; }

// log sum e^x, of stretches that come one after the other.
struct LogSum {
    float top = NONE, sum = 0.0F;

    void add(const float* x, std::size_t count) {
        Floats tops = all(top);
        std::size_t place = 0;
        for (; place + STEP <= count; place += STEP) tops = larger(tops, load(x + place));
        float highest = highest_of(tops);
        for (; place < count; ++place) highest = std::max(highest, x[place]);
        if (highest == NONE) return;
        Floats sums{};
        place = 0;
        for (; place + STEP <= count; place += STEP) sums += exp_of(load(x + place) - highest);
        if (place < count) {
            Floats rest = all(NONE);
            for (std::size_t lane = 0; place + lane < count; ++lane) rest[static_cast<int>(lane)] = x[place + lane] - highest;
            sums += exp_of(rest);
        }
        sum = (top == NONE ? 0.0F : sum * std::exp(top - highest)) + sum_of(sums);
        top = highest;
    }
    float value() const { return top + std::log(sum); }
};

// Everything about a sentence: candidates, what rows read of the source, scores.
struct Sentence {
    const std::int64_t* token_ids;
    const double* log_probs;
    std::size_t slots, least, most;              // N that there are; words
    std::size_t candidates, width;               // K, and K rounded up
    std::vector<std::size_t> counts;             // candidates of a slot, also of that behind the last where EOS competes with them
    std::vector<std::vector<std::size_t>> chosen;  // of the candidates of each slot; empty where none is left out
    std::vector<std::int64_t> kept_ids;
    std::vector<double> kept_log_probs;
    std::size_t length;
    std::vector<LatticeMemory> memory;
    PackedMatrix together;                       // EOS and all candidates, for Normaliser::UNION
    Buffer start, edges, exits;                  // [width], [most-1,K,width], [most,width]

    const std::int64_t* words(std::size_t slot) const { return token_ids + slot * candidates; }
    std::size_t counted(std::size_t slot) const {
        return static_cast<std::size_t>(std::find_if(words(slot), words(slot) + candidates, [](std::int64_t word) { return word < 0; }) - words(slot));
    }
    std::size_t place(std::size_t slot, std::size_t k) const { return chosen.empty() ? k : chosen[slot][k]; }
    // Leaves out all candidates that are not chosen.
    void keep_chosen() {
        std::size_t most = 1;
        for (const auto& one : chosen) most = std::max(most, one.size());
        kept_ids.assign(chosen.size() * most, -1), kept_log_probs.assign(chosen.size() * most, NONE);
        for (std::size_t slot = 0; slot < chosen.size(); ++slot)
            for (std::size_t k = 0; k < chosen[slot].size(); ++k) {
                kept_ids[slot * most + k] = words(slot)[chosen[slot][k]];
                kept_log_probs[slot * most + k] = log_probs[slot * candidates + chosen[slot][k]];
            }
        token_ids = kept_ids.data(), log_probs = kept_log_probs.data();
        slots = chosen.size(), candidates = most;
    }
    float* edge_row(std::size_t slot, std::size_t candidate) { return edges.data() + (slot * candidates + candidate) * width; }
};

// A thread's scratch.
struct Space {
    LatticeNetwork::Space network;
    std::vector<LatticeNetwork::Row> rows;
    std::vector<const float*> weights;
    PackedMatrix words;
    Buffer logits, added;
    std::vector<LogSum> sums;
    LatticeSpace<float> search;
    LatticeSeconds seconds{};
};

// Slots [first,last) of a sentence.
struct Stretch {
    std::size_t sentence, first, last;
};

// Adds the seconds that it lives, of so many threads.
class Clock {
 public:
    explicit Clock(double& seconds, int threads = 1) : seconds_(seconds), threads_(threads), since_(std::chrono::steady_clock::now()) {}
    ~Clock() { seconds_ += threads_ * std::chrono::duration<double>(std::chrono::steady_clock::now() - since_).count(); }
    Clock(const Clock&) = delete;
    Clock& operator=(const Clock&) = delete;

 private:
    double& seconds_;
    int threads_;
    std::chrono::steady_clock::time_point since_;
};

// A batch on its way.
class Task {
 public:
    Task(const LatticeNetwork& network, const Sources& sources, const LatticeRules& rules, bool all_exits, int threads)
        : network_(network), sources_(sources), rules_(rules), all_exits_(all_exits), team_(Team::waiting(threads)), sentences_(sources.rows.size()),
          spaces_(static_cast<std::size_t>(threads)) {
        const std::size_t width = network.network.shape.width;
        eos_ = network.network.target_words.data() + static_cast<std::size_t>(rules.eos) * width;
        nothing_.assign(width, 0.0F);
        std::size_t words = ENCODED_TOGETHER;
        for (std::size_t sentence = 0; sentence < sentences_.size(); ++sentence) {
            if (words >= ENCODED_TOGETHER) chunks_.push_back(sentence), words = 0;
            words += static_cast<std::size_t>(sources.lengths[sentence]);
        }
        chunks_.push_back(sentences_.size());
    }

    void encode_beside(const LatticeLookup* lookup, const LatticeCandidates* given) {
        const std::size_t chunks = chunks_.size() - 1;
        const bool shared = chunks < spaces_.size();  // fewer chunks than threads: all of them encode each
        std::vector<Buffer> states(chunks);
        found_.resize(chunks);
        for (std::size_t chunk = 0; shared && chunk < chunks; ++chunk) {
            const Clock clock(spaces_[0].seconds[ENCODING], team_.threads());
            states[chunk] = network_.network.encoded(sources_of(chunk), team_);
        }
        team_.run(2 * chunks, [&](std::size_t item, int thread) {
            Space& space = spaces_[static_cast<std::size_t>(thread)];
            const std::size_t chunk = item / 2;
            if (item % 2 == 0) {
                const Clock clock(space.seconds[ENCODING]);
                if (!shared) states[chunk] = network_.network.encoded(sources_of(chunk), Team::alone());
                remember(chunk, states[chunk].data());
            } else {
                const Clock clock(space.seconds[LOOKUP]);
                for (std::size_t sentence = chunks_[chunk]; given != nullptr && sentence < chunks_[chunk + 1]; ++sentence) take(*given, sentence);
                if (lookup != nullptr) look_up(*lookup, chunk);
                for (std::size_t sentence = chunks_[chunk]; !prunes() && sentence < chunks_[chunk + 1]; ++sentence)
                    prepare(sentences_[sentence], space);
            }
        });
        if (prunes()) prune();
    }

    void score() {
        std::vector<Stretch> items;
        for (std::size_t sentence = 0; sentence < sentences_.size(); ++sentence) {
            const Sentence& here = sentences_[sentence];
            std::size_t rows = SCORED_TOGETHER;
            for (std::size_t slot = 0; here.most > 0 && slot <= here.most; ++slot) {
                if (rows >= SCORED_TOGETHER) items.push_back({sentence, slot, slot}), rows = 0;
                rows += slot == 0 ? 1 : here.counts[slot - 1];
                items.back().last = slot + 1;
            }
        }
        team_.run(items.size(), [&](std::size_t item, int thread) {
            Space& space = spaces_[static_cast<std::size_t>(thread)];
            const Clock clock(space.seconds[SCORING]);
            score(sentences_[items[item].sentence], items[item].first, items[item].last, space);
        });
    }

    std::vector<LatticeOutcome> search() {
        std::vector<LatticeOutcome> outcomes(sentences_.size());
        team_.run(sentences_.size(), [&](std::size_t index, int thread) {
            Space& space = spaces_[static_cast<std::size_t>(thread)];
            const Clock clock(space.seconds[SEARCH]);
            const Sentence& here = sentences_[index];
            if (here.most == 0) return;  // an empty source: no words, for sure
            std::vector<std::int64_t> path(here.most);
            std::size_t length;
            outcomes[index].score = best_path<float>(
                {here.start.data(), here.edges.data(), here.exits.data(), here.width, here.width, here.candidates, here.least, here.most}, space.search,
                path.data(), length);
            for (std::size_t slot = 0; slot < length; ++slot) outcomes[index].words.push_back(here.words(slot)[path[slot]]);
        });
        return outcomes;
    }

    // Of `count` candidates a slot, as they were given.
    void copy_scores(std::size_t slots, std::size_t count, float* start, float* edges, float* exits) {
        for (std::size_t b = 0; b < sentences_.size(); ++b) {
            Sentence& here = sentences_[b];
            for (std::size_t slot = 0; slot < here.most; ++slot)
                for (std::size_t k = 0; k < here.counts[slot]; ++k) {
                    const std::size_t place = here.place(slot, k);
                    if (slot == 0) start[b * count + place] = here.start.data()[k];
                    exits[(b * slots + slot) * count + place] = here.exits.data()[slot * here.width + k];
                    float* row = edges + ((b * (slots - 1) + slot) * count + place) * count;
                    for (std::size_t next = 0; slot + 1 < here.most && next < here.counts[slot + 1]; ++next)
                        row[here.place(slot + 1, next)] = here.edge_row(slot, k)[next];
                }
        }
    }

    LatticeSeconds seconds() const {
        LatticeSeconds sum{};
        for (const Space& space : spaces_)
            for (std::size_t part = 0; part < sum.size(); ++part) sum[part] += space.seconds[part];
        return sum;
    }

 private:
    struct Found {
        std::vector<std::int64_t> token_ids;
        std::vector<double> log_probs;
    };

    const float* vector_of(std::int64_t word) const {
        return network_.network.target_words.data() + static_cast<std::size_t>(word) * network_.network.shape.width;
    }

    // Slots whose candidates are read.
    std::size_t slots_read(std::size_t most) const { return most + (most > 0 && rules_.normaliser == Normaliser::LOCAL ? 1 : 0); }

    Sources sources_of(std::size_t chunk) const {
        Sources part{sources_.ids, sources_.stride, {}, {}};
        for (std::size_t sentence = chunks_[chunk]; sentence < chunks_[chunk + 1]; ++sentence) {
            part.lengths.push_back(sources_.lengths[sentence]);
            part.rows.push_back(sources_.rows[sentence]);
        }
        return part;
    }

    void remember(std::size_t chunk, const float* states) {
        for (std::size_t sentence = chunks_[chunk]; sentence < chunks_[chunk + 1]; ++sentence) {
            Sentence& here = sentences_[sentence];
            here.length = static_cast<std::size_t>(sources_.lengths[sentence]);
            here.memory = network_.remember(states, here.length);
            states += here.length * network_.network.shape.width;
        }
    }

    void take(const LatticeCandidates& given, std::size_t sentence) {
        Sentence& here = sentences_[sentence];
        here.token_ids = given.token_ids + sentence * given.slots * given.candidates;
        here.log_probs = given.log_probs + sentence * given.slots * given.candidates;
        here.least = static_cast<std::size_t>(given.least[sentence]), here.most = static_cast<std::size_t>(given.most[sentence]);
        here.slots = given.slots, here.candidates = given.candidates;
    }

    void look_up(const LatticeLookup& lookup, std::size_t chunk) {
        std::vector<std::int64_t> ids, lengths, slots;
        const std::size_t first = chunks_[chunk], last = chunks_[chunk + 1], count = static_cast<std::size_t>(lookup.candidates);
        for (std::size_t sentence = first; sentence < last; ++sentence) {
            Sentence& here = sentences_[sentence];
            const std::int64_t* row = sources_.ids + sources_.rows[sentence] * sources_.stride;
            ids.insert(ids.end(), row, row + sources_.stride);
            lengths.push_back(sources_.lengths[sentence] - 1);
            const auto words = lookup.tables->header().line.words(lengths.back(), lookup.window);
            const std::size_t longest = std::max<std::size_t>(1, network_.network.shape.slots) - 1;  // the last code is for EOS
            here.least = std::min(longest, static_cast<std::size_t>(words.least));
            here.most = std::min(longest, static_cast<std::size_t>(words.most));
            here.candidates = count;
            slots.push_back(static_cast<std::int64_t>(slots_read(here.most)));
        }
        const auto most = static_cast<std::size_t>(*std::max_element(slots.begin(), slots.end()));
        Found& found = found_[chunk];
        found.token_ids.resize(slots.size() * most * count), found.log_probs.resize(found.token_ids.size());
        lattice_candidates(*lookup.tables, {ids, lengths, slots, static_cast<std::int64_t>(sources_.stride)}, {lookup.candidates, lookup.least_prior, 1},
                           static_cast<std::int64_t>(most), found.token_ids, found.log_probs);
        for (std::size_t sentence = first; sentence < last; ++sentence) {
            sentences_[sentence].token_ids = found.token_ids.data() + (sentence - first) * most * count;
            sentences_[sentence].log_probs = found.log_probs.data() + (sentence - first) * most * count;
            sentences_[sentence].slots = most;
            end_early(sentences_[sentence]);
        }
    }

    // Where a slot within the shortest length has no candidates a path may end before it.
    static void end_early(Sentence& here) {
        for (std::size_t slot = 0; slot < here.least; ++slot)
            if (here.words(slot)[0] < 0) here.least = 1;
    }

    bool prunes() const { return rules_.prune < std::numeric_limits<float>::infinity(); }

    std::size_t slots_told(const Sentence& here) const { return std::min(here.slots, slots_read(here.most)); }

    // From now on sentences have the candidates alone that are likely after no word by network and counts together, in their order.
    void prune() {
        std::vector<Stretch> items;
        for (std::size_t sentence = 0; sentence < sentences_.size(); ++sentence) {
            const std::size_t slots = slots_told(sentences_[sentence]), parts = std::max<std::size_t>(1, slots / PRUNED_TOGETHER);
            sentences_[sentence].chosen.resize(slots);
            for (std::size_t part = 0; part < parts; ++part) items.push_back({sentence, slots * part / parts, slots * (part + 1) / parts});
        }
        team_.run(items.size(), [&](std::size_t item, int thread) {
            Space& space = spaces_[static_cast<std::size_t>(thread)];
            const Clock clock(space.seconds[SCORING]);
            choose(sentences_[items[item].sentence], items[item].first, items[item].last, space);
        });
        team_.run(sentences_.size(), [&](std::size_t sentence, int thread) {
            Space& space = spaces_[static_cast<std::size_t>(thread)];
            const Clock clock(space.seconds[SCORING]);
            sentences_[sentence].keep_chosen();
            prepare(sentences_[sentence], space);
        });
    }

    void choose(Sentence& here, std::size_t first, std::size_t last, Space& space) const {
        const std::size_t width = network_.network.shape.width;
        space.rows.clear();
        for (std::size_t slot = first; slot < last; ++slot) space.rows.push_back({rules_.bos, slot});
        const float* states = network_.states(space.rows, here.memory, here.length, space.network);
        space.logits.reserve(here.candidates);
        float* scores = space.logits.data();
        for (std::size_t slot = first; slot < last; ++slot, states += width) {
            const std::size_t count = here.counted(slot);
            float best = NONE;
            for (std::size_t k = 0; k < count; ++k) {
                scores[k] = dot(states, vector_of(here.words(slot)[k]), width) + static_cast<float>(here.log_probs[slot * here.candidates + k]);
                best = std::max(best, scores[k]);
            }
            for (std::size_t k = 0; k < count; ++k)
                if (scores[k] >= best - rules_.prune) here.chosen[slot].push_back(k);
        }
    }

    // What needs candidates, but no source.
    void prepare(Sentence& here, Space& space) const {
        here.width = rounded_up(here.candidates);
        for (std::size_t slot = 0; slot < slots_told(here); ++slot) here.counts.push_back(here.counted(slot));
        here.start.reserve(here.width), here.exits.reserve(here.most * here.width);
        here.edges.reserve(here.most * here.candidates * here.width);
        std::fill_n(here.start.data(), here.width, NONE);
        std::fill_n(here.exits.data(), here.most * here.width, NONE);
        here.counts.resize(slots_read(here.most));
        if (rules_.normaliser != Normaliser::UNION) return;
        std::vector<std::int64_t> words{rules_.eos};
        for (std::size_t slot = 0; slot < here.most; ++slot) words.insert(words.end(), here.words(slot), here.words(slot) + here.counts[slot]);
        std::sort(words.begin(), words.end());
        words.erase(std::unique(words.begin(), words.end()), words.end());
        space.weights.clear();
        for (const std::int64_t word : words) space.weights.push_back(vector_of(word));
        here.together.pack(space.weights, nullptr, network_.network.shape.width);
    }

    void score(Sentence& here, std::size_t first, std::size_t last, Space& space) const {
        space.rows.clear();
        for (std::size_t slot = first; slot < last; ++slot) {
            if (slot == 0) space.rows.push_back({rules_.bos, 0});
            for (std::size_t k = 0; slot > 0 && k < here.counts[slot - 1]; ++k) space.rows.push_back({here.words(slot - 1)[k], slot});
        }
        const float* states = network_.states(space.rows, here.memory, here.length, space.network);
        add_up(here, states, space.rows.size(), space);
        std::size_t row = 0;
        for (std::size_t slot = first; slot < last; ++slot) {
            const std::size_t rows = slot == 0 ? 1 : here.counts[slot - 1];
            score_slot(here, slot, states + row * network_.network.shape.width, rows, space.sums.data() + row, space);
            row += rows;
        }
    }

    // The sums over more words than those of a slot.
    void add_up(const Sentence& here, const float* states, std::size_t rows, Space& space) const {
        space.sums.assign(rows, LogSum());
        const Normaliser kind = rules_.normaliser;
        if (kind == Normaliser::NONE || kind == Normaliser::LOCAL) return;
        const PackedMatrix& words = kind == Normaliser::FULL ? network_.network.vocabulary : here.together;
        const std::size_t width = network_.network.shape.width, tile = TILE_PANELS * words.panel();
        space.logits.reserve(rows * tile);
        for (std::size_t panel = 0; panel < words.panels(); panel += TILE_PANELS) {
            const std::size_t end = std::min(words.panels(), panel + TILE_PANELS);
            const std::size_t columns = std::min(words.outputs(), end * words.panel()) - panel * words.panel();
            words.multiply_panels(states, width, rows, space.logits.data(), tile, panel, end);
            for (std::size_t row = 0; row < rows; ++row) space.sums[row].add(space.logits.data() + row * tile, columns);
        }
    }

    // From the rows of a slot: scores of its candidates, and of ending before it.
    void score_slot(Sentence& here, std::size_t slot, const float* states, std::size_t rows, LogSum* sums, Space& space) const {
        const std::size_t width = network_.network.shape.width;
        const bool local = rules_.normaliser == Normaliser::LOCAL, words = slot < slots_read(here.most);
        const std::size_t count = words ? here.counts[slot] : 0;
        float* scores = slot == 0 ? here.start.data() : here.edges.data() + (slot - 1) * here.candidates * here.width;
        if (words) {
            space.weights.assign(here.width, nothing_.data());
            for (std::size_t k = 0; k < count; ++k) space.weights[k] = vector_of(here.words(slot)[k]);
            space.words.pack(space.weights, nullptr, width);
            product(space.words, network_.in_halves() ? HalfMatrix(space.words) : HalfMatrix(), states, rows, scores, Then::STORE, space.network.halves);
            space.added.reserve(here.width);
            for (std::size_t k = 0; k < here.width; ++k)
                space.added.data()[k] = k < count ? rules_.word_bonus + weighted(here.log_probs[slot * here.candidates + k]) : NONE;
        }
        const bool ends = slot > 0 && (all_exits_ || (slot >= here.least && slot <= here.most));
        for (std::size_t row = 0; row < rows; ++row) {
            const float eos = ends || local ? dot(states + row * width, eos_, width) : 0.0F;
            float* to = scores + row * here.width;
            if (local) sums[row].add(&eos, 1), sums[row].add(to, count);
            const float normaliser = rules_.normaliser == Normaliser::NONE ? 0.0F : sums[row].value();
            if (ends) here.exits.data()[(slot - 1) * here.width + row] = eos - normaliser;
            for (std::size_t k = 0; words && k < here.width; k += STEP) store(to + k, load(to + k) - normaliser + load(space.added.data() + k));
        }
    }

    float weighted(double log_prob) const { return rules_.count_weight == 0.0F ? 0.0F : rules_.count_weight * static_cast<float>(log_prob); }

    const LatticeNetwork& network_;
    const Sources& sources_;
    const LatticeRules& rules_;
    bool all_exits_;
    Team& team_;
    std::vector<Sentence> sentences_;
    std::vector<Space> spaces_;
    std::vector<std::size_t> chunks_;  // first sentences, and behind the last
    std::vector<Found> found_;         // by chunk
    const float* eos_;
    std::vector<float> nothing_;
};

std::vector<LatticeOutcome> decode(Task& task, const LatticeLookup* lookup, const LatticeCandidates* given, LatticeSeconds& seconds) {
    task.encode_beside(lookup, given);
    task.score();
    std::vector<LatticeOutcome> outcomes = task.search();
    seconds = task.seconds();
    return outcomes;
}

}  // namespace

std::vector<LatticeOutcome> decode_lattices(const LatticeNetwork& network, const Sources& sources, const LatticeLookup& lookup,
                                            const LatticeRules& rules, int threads, LatticeSeconds& seconds) {
    Task task(network, sources, rules, false, threads);
    return decode(task, &lookup, nullptr, seconds);
}

std::vector<LatticeOutcome> decode_lattices(const LatticeNetwork& network, const Sources& sources, const LatticeCandidates& candidates,
                                            const LatticeRules& rules, int threads, LatticeSeconds& seconds) {
    Task task(network, sources, rules, false, threads);
    return decode(task, nullptr, &candidates, seconds);
}

void score_lattices(const LatticeNetwork& network, const Sources& sources, const LatticeCandidates& candidates, const LatticeRules& rules,
                    int threads, float* start, float* edges, float* exits) {
    const std::size_t sentences = sources.rows.size(), slots = candidates.slots, count = candidates.candidates;
    std::fill_n(start, sentences * count, NONE);
    std::fill_n(edges, sentences * (slots == 0 ? 0 : slots - 1) * count * count, NONE);
    std::fill_n(exits, sentences * slots * count, NONE);
    Task task(network, sources, rules, true, threads);
    task.encode_beside(nullptr, &candidates);
    task.score();
    task.copy_scores(slots, count, start, edges, exits);
}

}  // namespace fewstep

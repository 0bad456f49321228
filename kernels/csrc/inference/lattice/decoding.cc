#include "csrc/inference/lattice/decoding.h"

#include <algorithm>
#include <chrono>
#include <limits>

#include "csrc/inference/candidates/lookup.h"

namespace fewstep {

namespace {

constexpr float NONE = -std::numeric_limits<float>::infinity();
constexpr std::size_t ENCODED_TOGETHER = 48;  // words at least, where there are more sentences: products of few rows are slow
constexpr std::size_t LONG_ENCODING = 1 << 24;  // multiplications: about as long as two look-ups take
constexpr std::size_t SCORED_TOGETHER = 32;   // rows at least
constexpr std::size_t PRUNED_TOGETHER = 8;    // slots at least

// A thread's scratch.
struct Space {
    LatticeScoring::Space scoring;
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
        : network_(network), sources_(sources), rules_(rules), scoring_(network, rules, all_exits), team_(Team::waiting(threads)),
          sentences_(sources.rows.size()), spaces_(static_cast<std::size_t>(threads)) {
        std::size_t words = ENCODED_TOGETHER;
        for (std::size_t sentence = 0; sentence < sentences_.size(); ++sentence) {
            if (words >= ENCODED_TOGETHER) chunks_.push_back(sentence), words = 0;
            words += static_cast<std::size_t>(sources.lengths[sentence]);
        }
        chunks_.push_back(sentences_.size());
    }

    void encode_beside(const LatticeLookup* lookup, const LatticeCandidates* given) {
        const std::size_t chunks = chunks_.size() - 1;
        const bool shared = encodes_together(lookup != nullptr);
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
                    scoring_.prepare(sentences_[sentence], space.scoring);
            }
        });
        if (prunes()) prune();
    }

    void score() {
        std::vector<Stretch> items;
        for (std::size_t sentence = 0; sentence < sentences_.size(); ++sentence) {
            const SentenceLattice& here = sentences_[sentence];
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
            scoring_.score(sentences_[items[item].sentence], items[item].first, items[item].last, space.scoring);
        });
    }

    std::vector<LatticeOutcome> search() {
        std::vector<LatticeOutcome> outcomes(sentences_.size());
        team_.run(sentences_.size(), [&](std::size_t index, int thread) {
            Space& space = spaces_[static_cast<std::size_t>(thread)];
            const Clock clock(space.seconds[SEARCH]);
            const SentenceLattice& here = sentences_[index];
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
            SentenceLattice& here = sentences_[b];
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
            SentenceLattice& here = sentences_[sentence];
            here.length = static_cast<std::size_t>(sources_.lengths[sentence]);
            here.memory = network_.remember(states, here.length);
            states += here.length * network_.network.shape.width;
        }
    }

    void take(const LatticeCandidates& given, std::size_t sentence) {
        SentenceLattice& here = sentences_[sentence];
        here.token_ids = given.token_ids + sentence * given.slots * given.candidates;
        here.log_probs = given.log_probs + sentence * given.slots * given.candidates;
        here.least = static_cast<std::size_t>(given.least[sentence]), here.most = static_cast<std::size_t>(given.most[sentence]);
        here.slots = given.slots, here.candidates = given.candidates;
    }

    void look_up(const LatticeLookup& lookup, std::size_t chunk) {
        std::vector<std::int64_t> ids, lengths, slots;
        const std::size_t first = chunks_[chunk], last = chunks_[chunk + 1], count = static_cast<std::size_t>(lookup.candidates);
        for (std::size_t sentence = first; sentence < last; ++sentence) {
            SentenceLattice& here = sentences_[sentence];
            const std::int64_t* row = sources_.ids + sources_.rows[sentence] * sources_.stride;
            ids.insert(ids.end(), row, row + sources_.stride);
            lengths.push_back(sources_.lengths[sentence] - 1);
            const auto words = lookup.tables->header().line.words(lengths.back(), lookup.window);
            const std::size_t longest = std::max<std::size_t>(1, network_.network.shape.slots) - 1;  // the last code is for EOS
            here.least = std::min(longest, static_cast<std::size_t>(words.least));
            here.most = std::min(longest, static_cast<std::size_t>(words.most));
            here.candidates = count;
            slots.push_back(static_cast<std::int64_t>(scoring_.slots_read(here.most)));
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
    static void end_early(SentenceLattice& here) {
        for (std::size_t slot = 0; slot < here.least; ++slot)
            if (here.words(slot)[0] < 0) here.least = 1;
    }

    // Do all threads encode each chunk? If there are some to spare, or nothing that takes about as long is to be looked up meanwhile.
    bool encodes_together(bool looks_up) const {
        const TransformerShape& shape = network_.network.shape;
        const std::size_t chunks = chunks_.size() - 1, layer = 4 * shape.width * shape.width + 2 * shape.width * shape.inner;
        std::size_t tokens = 0;
        for (const std::int64_t length : sources_.lengths) tokens += static_cast<std::size_t>(length);
        const bool beside = looks_up && tokens * shape.encoder_layers * layer <= LONG_ENCODING;
        return (beside ? 2 * chunks : chunks) < spaces_.size();
    }

    bool prunes() const { return rules_.prune < std::numeric_limits<float>::infinity(); }

    // From now on sentences have the candidates alone that are likely after no word by network and counts together, in their order.
    void prune() {
        std::vector<Stretch> items;
        for (std::size_t sentence = 0; sentence < sentences_.size(); ++sentence) {
            const std::size_t slots = scoring_.slots_told(sentences_[sentence]), parts = std::max<std::size_t>(1, slots / PRUNED_TOGETHER);
            sentences_[sentence].chosen.resize(slots);
            for (std::size_t part = 0; part < parts; ++part) items.push_back({sentence, slots * part / parts, slots * (part + 1) / parts});
        }
        team_.run(items.size(), [&](std::size_t item, int thread) {
            Space& space = spaces_[static_cast<std::size_t>(thread)];
            const Clock clock(space.seconds[SCORING]);
            scoring_.choose(sentences_[items[item].sentence], items[item].first, items[item].last, space.scoring);
        });
        team_.run(sentences_.size(), [&](std::size_t sentence, int thread) {
            Space& space = spaces_[static_cast<std::size_t>(thread)];
            const Clock clock(space.seconds[SCORING]);
            sentences_[sentence].keep_chosen();
            scoring_.prepare(sentences_[sentence], space.scoring);
        });
    }

    const LatticeNetwork& network_;
    const Sources& sources_;
    const LatticeRules& rules_;
    LatticeScoring scoring_;
    Team& team_;
    std::vector<SentenceLattice> sentences_;
    std::vector<Space> spaces_;
    std::vector<std::size_t> chunks_;  // first sentences, and behind the last
    std::vector<Found> found_;         // by chunk
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

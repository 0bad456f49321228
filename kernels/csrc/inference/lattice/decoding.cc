#include "csrc/inference/lattice/decoding.h"

#include <algorithm>
#include <chrono>
#include <limits>

#include "csrc/inference/candidates/lookup.h"

namespace fewstep {

namespace {

constexpr float MINUS_INFINITY = -std::numeric_limits<float>::infinity();
constexpr std::size_t MIN_ENCODED_TOKENS = 48;  // minimum tokens of a chunk of several sentences: products of few rows are slow
constexpr std::size_t LONG_ENCODING_WORK = 1 << 24;  // in multiplications: about as long as two look-ups
constexpr std::size_t MIN_SCORED_ROWS = 32;          // minimum rows of a task
constexpr std::size_t MIN_SELECTED_SLOTS = 8;        // minimum slots of a task

// Scratch memory of a thread.
struct Workspace {
    LatticeScoring::Workspace scoring;
    LatticeSpace<float> search;
    LatticeSeconds seconds{};
};

// Slots [first,last) of a sentence.
struct SlotRange {
    std::size_t sentence, first, last;
};

// Adds its lifetime in seconds, times the number of threads.
class SecondsTimer {
  public:
    explicit SecondsTimer(double& seconds, int threads = 1)
        : seconds_(seconds), threads_(threads), since_(std::chrono::steady_clock::now()) {}
    ~SecondsTimer() { seconds_ += threads_ * std::chrono::duration<double>(std::chrono::steady_clock::now() - since_).count(); }
    SecondsTimer(const SecondsTimer&) = delete;
    SecondsTimer& operator=(const SecondsTimer&) = delete;

  private:
    double& seconds_;
    int threads_;
    std::chrono::steady_clock::time_point since_;
};

// Decodes one batch.
class BatchDecoder {
  public:
    BatchDecoder(const LatticeNetwork& network, const Sources& sources, const LatticeRules& rules, bool all_exits, int threads)
        : network_(network),
          sources_(sources),
          rules_(rules),
          scoring_(network, rules, all_exits),
          team_(ThreadTeam::for_this_thread(threads)),
          sentences_(sources.rows.size()),
          workspaces_(static_cast<std::size_t>(threads)) {
        std::size_t tokens = MIN_ENCODED_TOKENS;
        for (std::size_t sentence = 0; sentence < sentences_.size(); ++sentence) {
            if (tokens >= MIN_ENCODED_TOKENS) chunks_.push_back(sentence), tokens = 0;
            tokens += static_cast<std::size_t>(sources.lengths[sentence]);
        }
        chunks_.push_back(sentences_.size());
    }

    void encode_and_look_up(const LatticeLookup* lookup, const LatticeCandidates* given) {
        const std::size_t chunks = chunks_.size() - 1;
        const bool shared = encode_with_all_threads(lookup != nullptr);
        std::vector<Buffer> states(chunks);
        looked_up_.resize(chunks);
        for (std::size_t chunk = 0; shared && chunk < chunks; ++chunk) {
            const SecondsTimer timer(workspaces_[0].seconds[ENCODING], team_.threads());
            states[chunk] = network_.network.encoder_states(sources_of(chunk), team_);
        }
        team_.run(2 * chunks, [&](std::size_t item, int thread) {
            Workspace& workspace = workspaces_[static_cast<std::size_t>(thread)];
            const std::size_t chunk = item / 2;
            if (item % 2 == 0) {
                const SecondsTimer timer(workspace.seconds[ENCODING]);
                if (!shared) states[chunk] = network_.network.encoder_states(sources_of(chunk), ThreadTeam::single());
                project_memory(chunk, states[chunk].data());
            } else {
                const SecondsTimer timer(workspace.seconds[LOOKUP]);
                for (std::size_t sentence = chunks_[chunk]; given != nullptr && sentence < chunks_[chunk + 1]; ++sentence)
                    copy_candidates(*given, sentence);
                if (lookup != nullptr) look_up(*lookup, chunk);
                for (std::size_t sentence = chunks_[chunk]; !selects_candidates() && sentence < chunks_[chunk + 1]; ++sentence)
                    scoring_.prepare(sentences_[sentence], workspace.scoring);
            }
        });
        if (selects_candidates()) threshold_candidates();
    }

    void score() {
        std::vector<SlotRange> items;
        for (std::size_t sentence = 0; sentence < sentences_.size(); ++sentence) {
            const SentenceLattice& lattice = sentences_[sentence];
            std::size_t rows = MIN_SCORED_ROWS;
            for (std::size_t slot = 0; lattice.max_length > 0 && slot <= lattice.max_length; ++slot) {
                if (rows >= MIN_SCORED_ROWS) items.push_back({sentence, slot, slot}), rows = 0;
                rows += slot == 0 ? 1 : lattice.counts[slot - 1];
                items.back().last = slot + 1;
            }
        }
        team_.run(items.size(), [&](std::size_t item, int thread) {
            Workspace& workspace = workspaces_[static_cast<std::size_t>(thread)];
            const SecondsTimer timer(workspace.seconds[SCORING]);
            scoring_.score(sentences_[items[item].sentence], items[item].first, items[item].last, workspace.scoring);
        });
    }

    std::vector<LatticeOutcome> search() {
        std::vector<LatticeOutcome> outcomes(sentences_.size());
        team_.run(sentences_.size(), [&](std::size_t index, int thread) {
            Workspace& workspace = workspaces_[static_cast<std::size_t>(thread)];
            const SecondsTimer timer(workspace.seconds[SEARCH]);
            const SentenceLattice& lattice = sentences_[index];
            if (lattice.max_length == 0) return;  // an empty source has an empty output
            std::vector<std::int64_t> path(lattice.max_length);
            std::size_t length;
            outcomes[index].score =
                best_path<float>({lattice.start.data(), lattice.edges.data(), lattice.exits.data(), lattice.width, lattice.width,
                                  lattice.candidates, lattice.min_length, lattice.max_length},
                                 workspace.search, path.data(), length);
            for (std::size_t slot = 0; slot < length; ++slot) outcomes[index].tokens.push_back(lattice.tokens(slot)[path[slot]]);
        });
        return outcomes;
    }

    // Copy the scores to arrays with `count` candidates per slot, in the given order.
    void copy_scores(std::size_t slots, std::size_t count, float* start, float* edges, float* exits) {
        for (std::size_t b = 0; b < sentences_.size(); ++b) {
            SentenceLattice& lattice = sentences_[b];
            for (std::size_t slot = 0; slot < lattice.max_length; ++slot)
                for (std::size_t k = 0; k < lattice.counts[slot]; ++k) {
                    const std::size_t index = lattice.original_index(slot, k);
                    if (slot == 0) start[b * count + index] = lattice.start.data()[k];
                    exits[(b * slots + slot) * count + index] = lattice.exits.data()[slot * lattice.width + k];
                    float* row = edges + ((b * (slots - 1) + slot) * count + index) * count;
                    for (std::size_t next = 0; slot + 1 < lattice.max_length && next < lattice.counts[slot + 1]; ++next)
                        row[lattice.original_index(slot + 1, next)] = lattice.edge_row(slot, k)[next];
                }
        }
    }

    LatticeSeconds seconds() const {
        LatticeSeconds sum{};
        for (const Workspace& workspace : workspaces_)
            for (std::size_t part = 0; part < sum.size(); ++part) sum[part] += workspace.seconds[part];
        return sum;
    }

  private:
    struct LookedUp {
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

    void project_memory(std::size_t chunk, const float* states) {
        for (std::size_t sentence = chunks_[chunk]; sentence < chunks_[chunk + 1]; ++sentence) {
            SentenceLattice& lattice = sentences_[sentence];
            lattice.length = static_cast<std::size_t>(sources_.lengths[sentence]);
            lattice.cross_cache = network_.project_memory(states, lattice.length);
            states += lattice.length * network_.network.shape.width;
        }
    }

    void copy_candidates(const LatticeCandidates& given, std::size_t sentence) {
        SentenceLattice& lattice = sentences_[sentence];
        lattice.token_ids = given.token_ids + sentence * given.slots * given.candidates;
        lattice.log_probs = given.log_probs + sentence * given.slots * given.candidates;
        lattice.min_length = static_cast<std::size_t>(given.min_length[sentence]),
        lattice.max_length = static_cast<std::size_t>(given.max_length[sentence]);
        lattice.slots = given.slots, lattice.candidates = given.candidates;
    }

    void look_up(const LatticeLookup& lookup, std::size_t chunk) {
        std::vector<std::int64_t> ids, lengths, slots;
        const std::size_t first = chunks_[chunk], last = chunks_[chunk + 1], count = static_cast<std::size_t>(lookup.candidates);
        for (std::size_t sentence = first; sentence < last; ++sentence) {
            SentenceLattice& lattice = sentences_[sentence];
            const std::int64_t* row = sources_.ids + sources_.rows[sentence] * sources_.stride;
            ids.insert(ids.end(), row, row + sources_.stride);
            lengths.push_back(sources_.lengths[sentence] - 1);
            const auto range = lookup.tables->header().regression.length_range(lengths.back(), lookup.window);
            const std::size_t max_slots =
                std::max<std::size_t>(1, network_.network.shape.slots) - 1;  // the last position code is for EOS
            lattice.min_length = std::min(max_slots, static_cast<std::size_t>(range.min));
            lattice.max_length = std::min(max_slots, static_cast<std::size_t>(range.max));
            lattice.candidates = count;
            slots.push_back(static_cast<std::int64_t>(scoring_.slots_read(lattice.max_length)));
        }
        const auto max_length = static_cast<std::size_t>(*std::max_element(slots.begin(), slots.end()));
        LookedUp& found = looked_up_[chunk];
        found.token_ids.resize(slots.size() * max_length * count), found.log_probs.resize(found.token_ids.size());
        lattice_candidates(*lookup.tables, {ids, lengths, slots, static_cast<std::int64_t>(sources_.stride)},
                           {lookup.candidates, lookup.min_prior, 1}, static_cast<std::int64_t>(max_length), found.token_ids,
                           found.log_probs);
        for (std::size_t sentence = first; sentence < last; ++sentence) {
            sentences_[sentence].token_ids = found.token_ids.data() + (sentence - first) * max_length * count;
            sentences_[sentence].log_probs = found.log_probs.data() + (sentence - first) * max_length * count;
            sentences_[sentence].slots = max_length;
            allow_early_end(sentences_[sentence]);
        }
    }

    // If a slot within the minimum length has no candidates, the path may end before it.
    static void allow_early_end(SentenceLattice& lattice) {
        for (std::size_t slot = 0; slot < lattice.min_length; ++slot)
            if (lattice.tokens(slot)[0] < 0) lattice.min_length = 1;
    }

    // Return whether all threads share the encoding of each chunk: if there are more threads than tasks. Otherwise the encoder of a
    // chunk runs in parallel with look-ups that take about as long.
    bool encode_with_all_threads(bool looks_up) const {
        const TransformerShape& shape = network_.network.shape;
        const std::size_t chunks = chunks_.size() - 1, layer = 4 * shape.width * shape.width + 2 * shape.width * shape.inner;
        std::size_t tokens = 0;
        for (const std::int64_t length : sources_.lengths) tokens += static_cast<std::size_t>(length);
        const bool in_parallel = looks_up && tokens * shape.encoder_layers * layer <= LONG_ENCODING_WORK;
        return (in_parallel ? 2 * chunks : chunks) < workspaces_.size();
    }

    bool selects_candidates() const { return rules_.candidate_threshold < std::numeric_limits<float>::infinity(); }

    // Keep only the candidates within the threshold, in their order.
    void threshold_candidates() {
        std::vector<SlotRange> items;
        for (std::size_t sentence = 0; sentence < sentences_.size(); ++sentence) {
            const std::size_t slots = scoring_.slots_looked_up(sentences_[sentence]),
                              parts = std::max<std::size_t>(1, slots / MIN_SELECTED_SLOTS);
            sentences_[sentence].selected.resize(slots);
            for (std::size_t part = 0; part < parts; ++part)
                items.push_back({sentence, slots * part / parts, slots * (part + 1) / parts});
        }
        team_.run(items.size(), [&](std::size_t item, int thread) {
            Workspace& workspace = workspaces_[static_cast<std::size_t>(thread)];
            const SecondsTimer timer(workspace.seconds[SCORING]);
            scoring_.select_candidates(sentences_[items[item].sentence], items[item].first, items[item].last, workspace.scoring);
        });
        team_.run(sentences_.size(), [&](std::size_t sentence, int thread) {
            Workspace& workspace = workspaces_[static_cast<std::size_t>(thread)];
            const SecondsTimer timer(workspace.seconds[SCORING]);
            sentences_[sentence].apply_selection();
            scoring_.prepare(sentences_[sentence], workspace.scoring);
        });
    }

    const LatticeNetwork& network_;
    const Sources& sources_;
    const LatticeRules& rules_;
    LatticeScoring scoring_;
    ThreadTeam& team_;
    std::vector<SentenceLattice> sentences_;
    std::vector<Workspace> workspaces_;
    std::vector<std::size_t> chunks_;  // first sentences, and the number of sentences
    std::vector<LookedUp> looked_up_;  // by chunk
};

std::vector<LatticeOutcome> decode(BatchDecoder& decoder, const LatticeLookup* lookup, const LatticeCandidates* given,
                                   LatticeSeconds& seconds) {
    decoder.encode_and_look_up(lookup, given);
    decoder.score();
    std::vector<LatticeOutcome> outcomes = decoder.search();
    seconds = decoder.seconds();
    return outcomes;
}

}  // namespace

std::vector<LatticeOutcome> decode_lattices(const LatticeNetwork& network, const Sources& sources, const LatticeLookup& lookup,
                                            const LatticeRules& rules, int threads, LatticeSeconds& seconds) {
    BatchDecoder decoder(network, sources, rules, false, threads);
    return decode(decoder, &lookup, nullptr, seconds);
}

std::vector<LatticeOutcome> decode_lattices(const LatticeNetwork& network, const Sources& sources,
                                            const LatticeCandidates& candidates, const LatticeRules& rules, int threads,
                                            LatticeSeconds& seconds) {
    BatchDecoder decoder(network, sources, rules, false, threads);
    return decode(decoder, nullptr, &candidates, seconds);
}

void score_lattices(const LatticeNetwork& network, const Sources& sources, const LatticeCandidates& candidates,
                    const LatticeRules& rules, int threads, float* start, float* edges, float* exits) {
    const std::size_t sentences = sources.rows.size(), slots = candidates.slots, count = candidates.candidates;
    std::fill_n(start, sentences * count, MINUS_INFINITY);
    std::fill_n(edges, sentences * (slots == 0 ? 0 : slots - 1) * count * count, MINUS_INFINITY);
    std::fill_n(exits, sentences * slots * count, MINUS_INFINITY);
    BatchDecoder decoder(network, sources, rules, true, threads);
    decoder.encode_and_look_up(nullptr, &candidates);
    decoder.score();
    decoder.copy_scores(slots, count, start, edges, exits);
}

}  // namespace fewstep

#include "csrc/inference/dag/network.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "csrc/base/simd_f32.h"
#include "csrc/inference/network/batch_partition.h"
#include "csrc/inference/network/sequence_pass.h"

namespace fewstep {

namespace {

constexpr float MINUS_INFINITY = -std::numeric_limits<float>::infinity();
constexpr std::size_t STEP = F32_LANES;
constexpr std::size_t MIN_VERTICES_PER_PART = 8;  // with fewer vertices, synchronisation takes longer

// The target length of a rank, 0 for the most probable one; the first one wins a tie.
std::size_t predict_length(const DagNetwork& network, const float* states, std::size_t length, std::size_t rank) {
    const std::size_t width = network.network.shape.width;
    std::vector<float> mean(width, 0.0F);
    for (std::size_t position = 0; position < length; ++position)
        for (std::size_t unit = 0; unit < width; ++unit) mean[unit] += states[position * width + unit];
    for (float& value : mean) value /= static_cast<float>(length);
    std::vector<float> scores;
    for (std::size_t row = 0; row * width < network.lengths.size(); ++row)
        scores.push_back(dot(mean.data(), network.lengths.data() + row * width, width));
    std::size_t best = 0;
    for (std::size_t better = 0; better <= rank; ++better) {
        if (better > 0) scores[best] = MINUS_INFINITY;
        float highest = MINUS_INFINITY;
        for (std::size_t row = 0; row < scores.size(); ++row)
            if (scores[row] > highest) highest = scores[row], best = row;
    }
    return best;
}

std::vector<std::size_t> vertices_of(const DagNetwork& network, const Sources& sources, const std::vector<std::int64_t>& sizes,
                                     std::size_t length_rank, const float* states) {
    std::vector<std::size_t> vertices;
    for (std::size_t sentence = 0; sentence < sources.rows.size(); ++sentence) {
        const auto length = static_cast<std::size_t>(sources.lengths[sentence]);
        const std::size_t position =
            network.lengths.empty() ? sources.rows[sentence] : predict_length(network, states, length, length_rank);
        vertices.push_back(static_cast<std::size_t>(sizes[position]));
        states += length * network.network.shape.width;
    }
    return vertices;
}

void embed_vertices(const DagNetwork& network, const DagRules& rules, const std::vector<std::size_t>& vertices, float* x) {
    const Transformer& model = network.network;
    const std::size_t width = model.shape.width;
    const std::int64_t tokens[] = {rules.bos, rules.mask, rules.token_rules.eos};
    const bool own = !network.vertex_inputs.empty();
    const float scale = own ? 1.0F : model.shape.embedding_scale();
    for (const std::size_t size : vertices)
        for (std::size_t vertex = 0; vertex < size; ++vertex, x += width) {
            const std::size_t kind = vertex == 0 ? 0 : vertex + 1 == size ? 2 : 1;
            const float* input = own ? network.vertex_inputs.data() + kind * width
                                     : model.target_embedding.data() + static_cast<std::size_t>(tokens[kind]) * width;
            const float* position_code = model.slot_codes.data() + vertex * width;
            for (std::size_t unit = 0; unit < width; ++unit) x[unit] = input[unit] * scale + position_code[unit];
        }
}

// Run the decoder for a group of sentences and build their DAGs.
void build_group(const DagNetwork& network, const Sources& sources, const std::vector<std::int64_t>& sizes, const DagRules& rules,
                 bool ranked, ThreadTeam& team, const std::function<void(std::size_t, Dag&)>& use) {
    const Transformer& model = network.network;
    const Buffer encoder_states = model.encoder_states(sources, team);
    const CrossCache cross_cache = model.cross_cache(sources, encoder_states.data(), team);
    const std::vector<std::size_t> vertices = vertices_of(network, sources, sizes, rules.length_rank, encoder_states.data());
    SequencePass pass(model, vertices, team);
    embed_vertices(network, rules, vertices, pass.x());
    for (std::size_t layer = 0; layer < model.decoder.size(); ++layer)
        pass.decode(model.decoder[layer], model.quantized_decoder[layer], cross_cache.layers[layer]);
    if (model.shape.pre_norm) model.decoder_norm.apply(pass.x(), pass.rows(), pass.x());
    std::size_t row = 0;
    for (std::size_t sentence = 0; sentence < vertices.size(); row += vertices[sentence++]) {
        const Shortlist sentence_shortlist =
            rules.shortlist.tokens > 0 ? shortlist(model, sources.sentence(sentence), rules.shortlist, model.lexicon.quantized())
                                       : Shortlist();
        Dag dag(network, rules, rules.shortlist.tokens > 0 ? &sentence_shortlist : nullptr, pass.x() + row * model.shape.width,
                vertices[sentence], team);
        if (ranked) {
            std::vector<std::size_t> all_vertices(vertices[sentence]);
            std::iota(all_vertices.begin(), all_vertices.end(), std::size_t{0});
            dag.rank(all_vertices);
        }
        use(sources.rows[sentence], dag);
    }
}

}  // namespace

DagNetwork::DagNetwork(Transformer transformer, Precision precision, PackedMatrix links, std::vector<float> link_codes,
                       std::vector<float> lengths, std::vector<float> vertex_inputs)
    : network(std::move(transformer)),
      links(std::move(links)),
      link_codes(std::move(link_codes)),
      lengths(std::move(lengths)),
      vertex_inputs(std::move(vertex_inputs)),
      quantized_links(this->links, precision == Precision::INT8 ? precision : Precision::FLOAT32) {
    network.quantize(precision);
}

Dag::Dag(const DagNetwork& network, const DagRules& rules, const Shortlist* sentence_shortlist, const float* states,
         std::size_t vertices, ThreadTeam& team)
    : network_(network),
      rules_(rules),
      vocabulary_(sentence_shortlist != nullptr ? sentence_shortlist->vocabulary(network.network)
                                                : Vocabulary{network.network.vocabulary, network.network.quantized_vocabulary}),
      token_rules_(sentence_shortlist != nullptr ? sentence_shortlist->localize(rules.token_rules) : rules.token_rules),
      states_(states),
      team_(team),
      vertices_(vertices),
      num_tokens_(rules.num_tokens),
      padded_(padded_length(vertices)),
      band_(std::min(network.max_transition_length, vertices - 1)),
      ranked_(vertices),
      has_transitions_(vertices),
      scores_(vertices * num_tokens_, MINUS_INFINITY),
      ids_(vertices * num_tokens_, rules.token_rules.eos),
      links_(vertices * network.link_width()),
      keys_(network.network.shape.width * padded_),
      head_scores_(network.network.shape.heads * padded_),
      transitions_(vertices * band_) {
    const std::size_t width = network.network.shape.width, stride = network.link_width();
    const auto parts = std::clamp<std::size_t>(vertices / MIN_VERTICES_PER_PART, 1, static_cast<std::size_t>(team.threads()));
    team.run(parts, [&](std::size_t part, int) {
        const std::size_t first = vertices * part / parts, last = vertices * (part + 1) / parts;
        float* links = links_.data() + first * stride;
        std::copy_n(network.link_codes.data() + first * stride, (last - first) * stride, links);
        QuantizedRows scratch;
        gemm(network.links, network.quantized_links, states + first * width, last - first, links, Epilogue::ADD, scratch);
        pack_keys(links + width, stride, first, last, vertices, width, keys_.data());
    });
}

void Dag::store_tokens(std::size_t vertex, const TopTokens& top_tokens, std::size_t row) {
    float* const scores = scores_.data() + vertex * num_tokens_;
    std::int64_t* const ids = ids_.data() + vertex * num_tokens_;
    std::copy_n(top_tokens.scores.data() + row * num_tokens_, num_tokens_, scores);
    std::copy_n(top_tokens.ids.data() + row * num_tokens_, num_tokens_, ids);
    if (vertex != 0 && vertex + 1 != vertices_) return;
    const std::size_t width = network_.network.shape.width;
    const std::int64_t token = vertex == 0 ? rules_.bos : rules_.token_rules.eos;
    const float* embedding = network_.network.target_embedding.data() + static_cast<std::size_t>(token) * width;
    std::fill_n(scores, num_tokens_, MINUS_INFINITY);
    scores[0] = dot(states_ + vertex * width, embedding, width) - top_tokens.normalisers[row];
    ids[0] = token;
}

void Dag::rank(std::vector<std::size_t> vertices_to_rank) {
    std::erase_if(vertices_to_rank, [this](std::size_t vertex) { return std::exchange(ranked_[vertex], 1) != 0; });
    const std::size_t rows = vertices_to_rank.size(), width = network_.network.shape.width;
    Buffer states(std::max<std::size_t>(1, rows * width));
    for (std::size_t row = 0; row < rows; ++row)
        std::copy_n(states_ + vertices_to_rank[row] * width, width, states.data() + row * width);
    TopTokens top_tokens;
    top_k_tokens(vocabulary_, states.data(), rows, 1, 0, num_tokens_, true, token_rules_, top_tokens, team_);
    for (std::size_t row = 0; row < rows; ++row) store_tokens(vertices_to_rank[row], top_tokens, row);
}

const float* Dag::transitions(std::size_t vertex) {
    const auto [heads, size] = network_.network.heads;
    const float* query = links_.data() + vertex * network_.link_width();
    const float* gates = query + 2 * heads * size;
    const float scale = 1.0F / std::sqrt(static_cast<float>(size));
    const std::size_t next = vertex + 1, start = next / STEP * STEP;
    const std::size_t end = std::min(vertices_, next + band_), stop = padded_length(end);
    float *row = transitions_.data() + vertex * band_, *head_scores = head_scores_.data();
    if (std::exchange(has_transitions_[vertex], 1) != 0) return row;
    std::fill(row, row + band_, MINUS_INFINITY);
    if (next >= vertices_) return row;
    const float top_gate = *std::max_element(gates, gates + heads);
    float gate_sum = 0.0F;
    for (std::size_t head = 0; head < heads; ++head) gate_sum += std::exp(gates[head] - top_gate);
    for (std::size_t head = 0; head < heads; ++head) {
        float* scores = head_scores + head * padded_;
        const float *units = query + head * size, *keys = keys_.data() + head * size * padded_;
        F32Vector highest = broadcast(MINUS_INFINITY), sum{};
        for (std::size_t position = start; position < stop; position += STEP) {
            F32Vector even{}, odd{};
            std::size_t unit = 0;
            for (; unit + 2 <= size; unit += 2) {
                even = multiply_add(broadcast(units[unit]), load(keys + unit * padded_ + position), even);
                odd = multiply_add(broadcast(units[unit + 1]), load(keys + (unit + 1) * padded_ + position), odd);
            }
            if (unit < size) even = multiply_add(broadcast(units[unit]), load(keys + unit * padded_ + position), even);
            store(scores + position, (even + odd) * scale);
        }
        std::fill(scores + start, scores + next, MINUS_INFINITY);
        std::fill(scores + end, scores + stop, MINUS_INFINITY);
        for (std::size_t position = start; position < stop; position += STEP)
            highest = vector_max(load(scores + position), highest);
        const float top = horizontal_max(highest);
        for (std::size_t position = start; position < stop; position += STEP) sum += vector_exp(load(scores + position) - top);
        const float shift = gates[head] - top_gate - std::log(gate_sum) - top - std::log(horizontal_sum(sum));
        for (std::size_t position = start; position < stop; position += STEP)
            store(scores + position, load(scores + position) + shift);
    }
    for (std::size_t position = start; position < stop; position += STEP) {
        F32Vector highest = load(head_scores + position), sum{};
        for (std::size_t head = 1; head < heads; ++head)
            highest = vector_max(load(head_scores + head * padded_ + position), highest);
        for (std::size_t head = 0; head < heads; ++head) sum += vector_exp(load(head_scores + head * padded_ + position) - highest);
        for (std::size_t lane = 0; lane < STEP; ++lane)
            if (position + lane >= next && position + lane < end) row[position + lane - next] = highest[lane] + std::log(sum[lane]);
    }
    return row;
}

void for_each_dag(const DagNetwork& network, const Sources& sources, const std::vector<std::int64_t>& sizes, const DagRules& rules,
                  bool ranked, int threads, const std::function<void(std::size_t, Dag&)>& use) {
    for_each_group(sources, threads,
                   [&](const Sources& group, ThreadTeam& team) { build_group(network, group, sizes, rules, ranked, team, use); });
}

namespace {

struct Transition {
    std::size_t from, to;
    const float* transitions;  // from this vertex to the next ones
    float best;                // score of the best transition and its token
};

float score_of(const Transition& transition, std::size_t to) { return transition.transitions[to - transition.from - 1]; }

float total_score(const Dag& dag, const Transition& transition, std::size_t to, float token_weight) {
    const float score = score_of(transition, to);
    return token_weight == 0.0F ? score : score + token_weight * dag.scores(to)[0];
}

// The end of the vertices that can follow a vertex.
std::size_t end_of(const Dag& dag, const Transition& transition) {
    return std::min(dag.vertices(), transition.from + 1 + dag.band());
}

// Choose the best transition to a vertex with known tokens; to the vertex itself if there is no valid one (NaN).
void choose_transition(const Dag& dag, Transition& transition, float token_weight) {
    transition.to = transition.from, transition.best = MINUS_INFINITY;
    for (std::size_t to = transition.from + 1; to < end_of(dag, transition); ++to) {
        if (token_weight != 0.0F && !dag.ranked(to)) continue;
        const float sum = total_score(dag, transition, to, token_weight);
        if (sum > transition.best) transition.best = sum, transition.to = to;
    }
}

// Add the vertices with unknown tokens whose transition could still be the best: token scores are at most 0.
void add_contenders(const Dag& dag, const Transition& transition, std::vector<std::size_t>& contenders) {
    for (std::size_t to = transition.from + 1; to < end_of(dag, transition); ++to)
        if (!dag.ranked(to) && score_of(transition, to) >= transition.best) contenders.push_back(to);
}

Transition best_transition(Dag& dag, std::size_t vertex, float token_weight) {
    Transition transition{vertex, vertex, dag.transitions(vertex), MINUS_INFINITY};
    choose_transition(dag, transition, token_weight);
    if (token_weight == 0.0F) return transition;
    std::vector<std::size_t> contenders;
    add_contenders(dag, transition, contenders);
    if (contenders.empty()) return transition;
    dag.rank(std::move(contenders));
    choose_transition(dag, transition, token_weight);
    return transition;
}

// The transitions from vertex 0 to the last one, or to a vertex without a valid transition.
std::vector<Transition> walk(Dag& dag, float token_weight) {
    std::vector<Transition> path;
    std::size_t vertex = 0;
    while (vertex + 1 != dag.vertices()) {
        path.push_back(best_transition(dag, vertex, token_weight));
        if (path.back().to == vertex) return path;
        vertex = path.back().to;
    }
    path.push_back({vertex, vertex, nullptr, MINUS_INFINITY});
    return path;
}

void rank_path(Dag& dag, const std::vector<Transition>& path) {
    std::vector<std::size_t> vertices_to_rank;
    for (const Transition& transition : path) vertices_to_rank.push_back(transition.from);
    dag.rank(std::move(vertices_to_rank));
}

// Rank at once the tokens that a walk along the path would request one vertex at a time.
void rank_contenders(Dag& dag, std::vector<Transition>& path, float token_weight) {
    std::vector<std::size_t> contenders;
    for (Transition& transition : path) {
        if (transition.to == transition.from) break;
        choose_transition(dag, transition, token_weight);
        add_contenders(dag, transition, contenders);
    }
    dag.rank(std::move(contenders));
}

}  // namespace

DagOutput follow(Dag& dag, float token_weight) {
    std::vector<Transition> path = walk(dag, 0.0F);
    rank_path(dag, path);
    if (token_weight != 0.0F) {
        rank_contenders(dag, path, token_weight);
        path = walk(dag, token_weight);
    }
    DagOutput found{{}, 0.0};
    for (const Transition& transition : path) {
        found.score += dag.scores(transition.from)[0];
        if (transition.from > 0 && transition.from + 1 < dag.vertices()) found.ids.push_back(dag.ids(transition.from)[0]);
        if (transition.to != transition.from) found.score += score_of(transition, transition.to);
    }
    return found;
}

}  // namespace fewstep

#include "csrc/inference/dag/network.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "csrc/base/simd_f32.h"
#include "csrc/inference/network/sequence_pass.h"

namespace fewstep {

namespace {

constexpr float NONE = -std::numeric_limits<float>::infinity();
constexpr std::size_t STEP = LANES;
constexpr std::size_t TOGETHER = 8;      // sentences that share what is read of the weights
constexpr std::size_t LEAST_LINKED = 8;  // vertices of a part: with fewer, meeting takes longer

// The likeliest length of a target, the first of equally likely ones.
std::size_t likeliest_length(const GraphNetwork& network, const float* states, std::size_t length) {
    const std::size_t width = network.network.shape.width;
    std::vector<float> mean(width, 0.0F);
    for (std::size_t place = 0; place < length; ++place)
        for (std::size_t unit = 0; unit < width; ++unit) mean[unit] += states[place * width + unit];
    for (float& value : mean) value /= static_cast<float>(length);
    std::size_t best = 0;
    float highest = NONE;
    for (std::size_t row = 0; row * width < network.lengths.size(); ++row) {
        const float score = dot(mean.data(), network.lengths.data() + row * width, width);
        if (score > highest) highest = score, best = row;
    }
    return best;
}

std::vector<std::size_t> vertices_of(const GraphNetwork& network, const Sources& sources, const std::vector<std::int64_t>& sizes,
                                     const float* states) {
    std::vector<std::size_t> vertices;
    for (std::size_t sentence = 0; sentence < sources.rows.size(); ++sentence) {
        const auto length = static_cast<std::size_t>(sources.lengths[sentence]);
        const std::size_t place = network.lengths.empty() ? sources.rows[sentence] : likeliest_length(network, states, length);
        vertices.push_back(static_cast<std::size_t>(sizes[place]));
        states += length * network.network.shape.width;
    }
    return vertices;
}

void embed_vertices(const Transformer& model, const GraphRules& rules, const std::vector<std::size_t>& vertices, float* x) {
    const std::size_t width = model.shape.width;
    const float scale = std::sqrt(static_cast<float>(width));
    for (const std::size_t size : vertices)
        for (std::size_t vertex = 0; vertex < size; ++vertex, x += width) {
            const std::int64_t word = vertex == 0 ? rules.bos : vertex + 1 == size ? rules.words.eos : rules.mask;
            const float* vector = model.target_words.data() + static_cast<std::size_t>(word) * width;
            const float* code = model.slot_codes.data() + vertex * width;
            for (std::size_t unit = 0; unit < width; ++unit) x[unit] = vector[unit] * scale + code[unit];
        }
}

// The graphs of some sentences that go through the layers together.
void graphs_of_some(const GraphNetwork& all, const Sources& sources, const std::vector<std::int64_t>& sizes, const GraphRules& rules,
                    bool ranked, Team& team, const std::function<void(std::size_t, Graph&)>& use) {
    const Transformer& model = all.network;
    const Buffer encoded = model.encoded(sources, team);
    const Memory memory = model.memory(sources, encoded.data(), team);
    const std::vector<std::size_t> vertices = vertices_of(all, sources, sizes, encoded.data());
    SequencePass pass(model, vertices, team);
    embed_vertices(model, rules, vertices, pass.x());
    for (std::size_t layer = 0; layer < model.decoder.size(); ++layer)
        pass.decode(model.decoder[layer], model.narrow_decoder[layer], memory.layers[layer]);
    if (model.shape.pre_norm) model.decoder_norm.apply(pass.x(), pass.rows(), pass.x());
    std::size_t row = 0;
    for (std::size_t sentence = 0; sentence < vertices.size(); row += vertices[sentence++]) {
        const Shortlist list = rules.shortlist.words > 0 ? shortlist(model, sources.sentence(sentence), rules.shortlist, model.lexicon.in_bytes()) : Shortlist();
        Graph graph(all, rules, rules.shortlist.words > 0 ? &list : nullptr, pass.x() + row * model.shape.width, vertices[sentence], team);
        if (ranked) {
            std::vector<std::size_t> every(vertices[sentence]);
            std::iota(every.begin(), every.end(), std::size_t{0});
            graph.rank(every);
        }
        use(sources.rows[sentence], graph);
    }
}

}  // namespace

GraphNetwork::GraphNetwork(Transformer transformer, Precision precision, PackedMatrix links, std::vector<float> link_codes,
                           std::vector<float> lengths)
    : network(std::move(transformer)), links(std::move(links)), link_codes(std::move(link_codes)), lengths(std::move(lengths)),
      narrow_links(this->links, precision == Precision::BYTES ? precision : Precision::FLOATS) {
    network.narrow(precision);
}

Graph::Graph(const GraphNetwork& network, const GraphRules& rules, const Shortlist* list, const float* states, std::size_t vertices, Team& team)
    : network_(network), rules_(rules),
      vocabulary_(list != nullptr ? list->vocabulary(network.network) : Vocabulary{network.network.vocabulary, network.network.narrow_vocabulary}),
      words_(list != nullptr ? list->places(rules.words) : rules.words), states_(states), team_(team), vertices_(vertices), wanted_(rules.wanted), room_(room_for(vertices)),
      ranked_(vertices), followed_(vertices), scores_(vertices * wanted_, NONE), ids_(vertices * wanted_, rules.words.eos), links_(vertices * network.link_width()),
      keys_(network.network.shape.width * room_), joint_(network.network.shape.heads * room_), transitions_(vertices * room_) {
    const std::size_t width = network.network.shape.width, stride = network.link_width();
    const auto parts = std::clamp<std::size_t>(vertices / LEAST_LINKED, 1, static_cast<std::size_t>(team.threads()));
    team.run(parts, [&](std::size_t part, int) {
        const std::size_t first = vertices * part / parts, last = vertices * (part + 1) / parts;
        float* links = links_.data() + first * stride;
        std::copy_n(network.link_codes.data() + first * stride, (last - first) * stride, links);
        NarrowRows scratch;
        product(network.links, network.narrow_links, states + first * width, last - first, links, Then::ADD, scratch);
        lay_out_keys(links + width, stride, first, last, vertices, width, keys_.data());
    });
}

void Graph::take(std::size_t vertex, const BestWords& words, std::size_t row) {
    float* const scores = scores_.data() + vertex * wanted_;
    std::int64_t* const ids = ids_.data() + vertex * wanted_;
    std::copy_n(words.scores.data() + row * wanted_, wanted_, scores);
    std::copy_n(words.ids.data() + row * wanted_, wanted_, ids);
    if (vertex != 0 && vertex + 1 != vertices_) return;
    const std::size_t width = network_.network.shape.width;
    const std::int64_t word = vertex == 0 ? rules_.bos : rules_.words.eos;
    const float* vector = network_.network.target_words.data() + static_cast<std::size_t>(word) * width;
    std::fill_n(scores, wanted_, NONE);
    scores[0] = dot(states_ + vertex * width, vector, width) - words.normalisers[row];
    ids[0] = word;
}

void Graph::rank(std::vector<std::size_t> some) {
    std::erase_if(some, [this](std::size_t vertex) { return std::exchange(ranked_[vertex], 1) != 0; });
    const std::size_t rows = some.size(), width = network_.network.shape.width;
    Buffer states(std::max<std::size_t>(1, rows * width));
    for (std::size_t row = 0; row < rows; ++row) std::copy_n(states_ + some[row] * width, width, states.data() + row * width);
    BestWords words;
    best_words(vocabulary_, states.data(), rows, 1, 0, wanted_, true, words_, words, team_);
    for (std::size_t row = 0; row < rows; ++row) take(some[row], words, row);
}

const float* Graph::transitions(std::size_t vertex) {
    const auto [heads, size] = network_.network.heads;
    const float* query = links_.data() + vertex * network_.link_width();
    const float* gates = query + 2 * heads * size;
    const float scale = 1.0F / std::sqrt(static_cast<float>(size));
    const std::size_t next = vertex + 1, start = next / STEP * STEP;
    float *row = transitions_.data() + vertex * room_, *joint = joint_.data();
    if (std::exchange(followed_[vertex], 1) != 0) return row;
    std::fill(row, row + room_, NONE);
    if (next >= vertices_) return row;
    const float top_gate = *std::max_element(gates, gates + heads);
    float gate_sum = 0.0F;
    for (std::size_t head = 0; head < heads; ++head) gate_sum += std::exp(gates[head] - top_gate);
    for (std::size_t head = 0; head < heads; ++head) {
        float* scores = joint + head * room_;
        const float *units = query + head * size, *keys = keys_.data() + head * size * room_;
        Floats highest = all(NONE), sum{};
        for (std::size_t place = start; place < room_; place += STEP) {
            Floats even{}, odd{};
            std::size_t unit = 0;
            for (; unit + 2 <= size; unit += 2) {
                even = fused(all(units[unit]), load(keys + unit * room_ + place), even);
                odd = fused(all(units[unit + 1]), load(keys + (unit + 1) * room_ + place), odd);
            }
            if (unit < size) even = fused(all(units[unit]), load(keys + unit * room_ + place), even);
            store(scores + place, (even + odd) * scale);
        }
        std::fill(scores + start, scores + next, NONE);
        std::fill(scores + vertices_, scores + room_, NONE);
        for (std::size_t place = start; place < room_; place += STEP) highest = larger(load(scores + place), highest);
        const float top = highest_of(highest);
        for (std::size_t place = start; place < room_; place += STEP) sum += exp_of(load(scores + place) - top);
        const float shift = gates[head] - top_gate - std::log(gate_sum) - top - std::log(sum_of(sum));
        for (std::size_t place = start; place < room_; place += STEP) store(scores + place, load(scores + place) + shift);
    }
    for (std::size_t place = start; place < room_; place += STEP) {
        Floats highest = load(joint + place), sum{};
        for (std::size_t head = 1; head < heads; ++head) highest = larger(load(joint + head * room_ + place), highest);
        for (std::size_t head = 0; head < heads; ++head) sum += exp_of(load(joint + head * room_ + place) - highest);
        for (std::size_t lane = 0; lane < STEP; ++lane)
            if (place + lane >= next && place + lane < vertices_) row[place + lane] = highest[lane] + std::log(sum[lane]);
    }
    return row;
}

void each_graph(const GraphNetwork& network, const Sources& sources, const std::vector<std::int64_t>& sizes, const GraphRules& rules,
                bool ranked, int threads, const std::function<void(std::size_t, Graph&)>& use) {
    const std::size_t sentences = sources.rows.size(), shares = static_cast<std::size_t>(threads);
    const std::size_t together = std::clamp<std::size_t>((sentences + shares - 1) / shares, 1, TOGETHER);
    const std::size_t groups = (sentences + together - 1) / together;
    Team& all = Team::waiting(threads);
    all.run(groups, [&](std::size_t group, int) {
        const auto first = static_cast<std::ptrdiff_t>(group * together);
        const auto end = std::min(first + static_cast<std::ptrdiff_t>(together), static_cast<std::ptrdiff_t>(sentences));
        const Sources some{sources.ids, sources.stride, {sources.lengths.begin() + first, sources.lengths.begin() + end},
                           {sources.rows.begin() + first, sources.rows.begin() + end}};
        graphs_of_some(network, some, sizes, rules, ranked, groups == 1 ? all : Team::alone(), use);
    });
}

namespace {

struct Step {
    std::size_t from, to;
    const float* transitions;  // from there
    float best;                // transition and word of the best one
};

float total_of(const Graph& graph, const Step& step, std::size_t to, float word_weight) {
    return word_weight == 0.0F ? step.transitions[to] : step.transitions[to] + word_weight * graph.scores(to)[0];
}

// Chooses the best step; to the vertex itself where there is none (of NaNs). Words count where they are known.
void choose(const Graph& graph, Step& step, float word_weight) {
    step.to = step.from, step.best = NONE;
    for (std::size_t to = step.from + 1; to < graph.vertices(); ++to) {
        if (word_weight != 0.0F && !graph.ranked(to)) continue;
        const float sum = total_of(graph, step, to, word_weight);
        if (sum > step.best) step.best = sum, step.to = to;
    }
}

// Adds the vertices whose words are not known and may make the step to them better than the best one, for no score is above 0.
void add_rivals(const Graph& graph, const Step& step, std::vector<std::size_t>& rivals) {
    for (std::size_t to = step.from + 1; to < graph.vertices(); ++to)
        if (!graph.ranked(to) && step.transitions[to] >= step.best) rivals.push_back(to);
}

Step best_step(Graph& graph, std::size_t vertex, float word_weight) {
    Step step{vertex, vertex, graph.transitions(vertex), NONE};
    choose(graph, step, word_weight);
    if (word_weight == 0.0F) return step;
    std::vector<std::size_t> rivals;
    add_rivals(graph, step, rivals);
    if (rivals.empty()) return step;
    graph.rank(std::move(rivals));
    choose(graph, step, word_weight);
    return step;
}

// Steps from vertex 0 to the last one, which has none, or to where there is none.
std::vector<Step> walk(Graph& graph, float word_weight) {
    std::vector<Step> path;
    std::size_t vertex = 0;
    while (vertex + 1 != graph.vertices()) {
        path.push_back(best_step(graph, vertex, word_weight));
        if (path.back().to == vertex) return path;
        vertex = path.back().to;
    }
    path.push_back({vertex, vertex, nullptr, NONE});
    return path;
}

void rank_path(Graph& graph, const std::vector<Step>& path) {
    std::vector<std::size_t> some;
    for (const Step& step : path) some.push_back(step.from);
    graph.rank(std::move(some));
}

// Ranks at once what a walk along the path would ask for vertex by vertex.
void rank_rivals(Graph& graph, std::vector<Step>& path, float word_weight) {
    std::vector<std::size_t> rivals;
    for (Step& step : path) {
        if (step.to == step.from) break;
        choose(graph, step, word_weight);
        add_rivals(graph, step, rivals);
    }
    graph.rank(std::move(rivals));
}

}  // namespace

GraphPath follow(Graph& graph, float word_weight) {
    std::vector<Step> path = walk(graph, 0.0F);
    rank_path(graph, path);
    if (word_weight != 0.0F) {
        rank_rivals(graph, path, word_weight);
        path = walk(graph, word_weight);
    }
    GraphPath found{{}, 0.0};
    for (const Step& step : path) {
        found.score += graph.scores(step.from)[0];
        if (step.from > 0 && step.from + 1 < graph.vertices()) found.ids.push_back(graph.ids(step.from)[0]);
        if (step.to != step.from) found.score += step.transitions[step.to];
    }
    return found;
}

}  // namespace fewstep

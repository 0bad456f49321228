// A Directed Acyclic Transformer (Huang et al. 2022) at work: sources to graphs of vertices, and the paths that follow the best step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "csrc/base/thread_team.h"
#include "csrc/inference/network/shortlist.h"
#include "csrc/inference/network/transformer.h"

namespace fewstep {

// The decoder reads BOS, MASK, ..., MASK, EOS with the codes of their places (`network.slot_codes`), and each place sees all. With
// state s_i of vertex i, and queries, keys and gates of a head h linear in state and place,
//
//     p_h(j | i)    = softmax over j of q_ih k_jh / sqrt(d), for j > i
//     log E(i -> j) = log sum_h softmax_h(gates_i) p_h(j | i)
//     log P(w | i)  = log softmax of s_i by the target's words
struct DagNetwork {
    DagNetwork(Transformer transformer, Precision precision, PackedMatrix links, std::vector<float> link_codes, std::vector<float> lengths);

    Transformer network;
    PackedMatrix links;             // [2D+H,D] of states to queries, keys and gates
    std::vector<float> link_codes;  // [slots,2D+H] what places add to them
    std::vector<float> lengths;     // [classes,D] ranks the target's length by the mean state of the source; empty where it is given
    QuantizedMatrix quantized_links;      // in fewer bits, if any

    std::size_t link_width() const { return 2 * network.shape.width + network.shape.heads; }
};

struct DagRules {
    TokenRules token_rules;      // what no vertex between the ends writes; `eos` is what the last one writes
    std::int64_t bos, mask;
    std::size_t num_tokens;   // words of each vertex
    ShortlistOptions shortlist = {};  // of what they are chosen among
};

// The graph of one sentence. Its states [vertices,D] are read as long as it lives. `list`: what its words are chosen among, if not all.
class Dag {
 public:
    Dag(const DagNetwork& network, const DagRules& rules, const Shortlist* sentence_shortlist, const float* states, std::size_t vertices, ThreadTeam& team);

    std::size_t vertices() const { return vertices_; }
    // Finds the words of some vertices, those of them that are not known yet.
    void rank(std::vector<std::size_t> vertices_to_rank);
    bool ranked(std::size_t vertex) const { return ranked_[vertex] != 0; }
    // [W] the best words of a vertex, best first; minus infinity where there are no more, and where none were found. The first vertex
    // writes BOS alone, the last one EOS.
    const float* scores(std::size_t vertex) const { return scores_.data() + vertex * num_tokens_; }
    const std::int64_t* ids(std::size_t vertex) const { return ids_.data() + vertex * num_tokens_; }
    // log E(vertex -> j) for all j, minus infinity where there is none.
    const float* transitions(std::size_t vertex);

 private:
    void store_tokens(std::size_t vertex, const TopTokens& top_tokens, std::size_t row);

    const DagNetwork& network_;
    const DagRules& rules_;
    Vocabulary vocabulary_;
    TokenRules token_rules_;  // by place in the list, if there is one
    const float* states_;
    ThreadTeam& team_;
    std::size_t vertices_, num_tokens_, padded_;
    std::vector<char> ranked_, has_transitions_;  // vertices whose words, whose transitions are there
    std::vector<float> scores_;
    std::vector<std::int64_t> ids_;
    Buffer links_, keys_, head_scores_, transitions_;  // [vertices,2D+H]; [D,room]; [H,room]; [vertices,room]
};

// Calls use(sentence, graph) for each sentence, from any of the threads; the words of all its vertices are `ranked`, or of none. `sizes`
// are the vertices of the graphs, by sentence or, where the network ranks lengths, by the likeliest of them. A sentence's graph is the
// same to the last bit whatever is beside it.
void for_each_dag(const DagNetwork& network, const Sources& sources, const std::vector<std::int64_t>& sizes, const DagRules& rules,
                bool ranked, int threads, const std::function<void(std::size_t, Dag&)>& use);

struct DagOutput {
    std::vector<std::int64_t> ids;  // the words of the vertices between the ends
    double score;                   // transitions and words, of the ends too
};

// From vertex 0 on always the j of the highest log E(i -> j), plus `word_weight` times the score of j's best word. Only those vertices
// are ranked that may matter: with a weight of 0 those on the path; else those on that path, and where a step's transition alone is
// higher than the best sum.
DagOutput follow(Dag& dag, float token_weight);

}  // namespace fewstep

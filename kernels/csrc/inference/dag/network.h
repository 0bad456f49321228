// The Directed Acyclic Transformer (Huang et al. 2022): DAGs of sources, and greedy and lookahead decoding.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <vector>

#include "csrc/base/thread_team.h"
#include "csrc/inference/network/shortlist.h"
#include "csrc/inference/network/transformer.h"

namespace fewstep {

// The decoder reads BOS, MASK, ..., MASK, EOS, or `vertex_inputs` in their place, with position codes (`network.slot_codes`) and
// full self-attention. With the state
// s_i of vertex i, and queries, keys and gates of each head h that are linear in state and position (Huang et al. 2022, section
// 3.2),
//     p_h(j | i)    = softmax over j of q_ih k_jh / sqrt(d), for i < j <= i + max_transition_length
//     log E(i -> j) = log sum_h softmax_h(gates_i) p_h(j | i)
//     log P(w | i)  = log softmax of s_i over the target vocabulary
struct DagNetwork {
    DagNetwork(Transformer transformer, Precision precision, PackedMatrix links, std::vector<float> link_codes,
               std::vector<float> lengths, std::vector<float> vertex_inputs);

    Transformer network;
    PackedMatrix links;             // [2D+H,D] projection of states to queries, keys and gates
    std::vector<float> link_codes;  // [slots,2D+H] contribution of the positions
    std::vector<float> lengths;  // [classes,D] logits of the target length from the mean source state; empty if lengths are given
    std::vector<float> vertex_inputs;  // [3,D] inputs of the first, of empty, and of the last vertices; empty: those of tokens
    QuantizedMatrix quantized_links;   // empty in float32
    std::size_t max_transition_length = std::numeric_limits<std::size_t>::max() / 2;  // next vertices that may follow a vertex

    std::size_t link_width() const { return 2 * network.shape.width + network.shape.heads; }
};

struct DagRules {
    TokenRules token_rules;  // banned at vertices between the ends; `eos` is the token of the last vertex
    std::int64_t bos, mask;
    std::size_t num_tokens;           // top tokens per vertex
    ShortlistOptions shortlist = {};  // candidate tokens
    std::size_t length_rank = 0;      // of the target length that determines the DAG, among the predicted ones
};

// The DAG of one sentence. Its states [vertices,D] must outlive it. `sentence_shortlist`: candidate tokens, or null for all tokens.
class Dag {
  public:
    Dag(const DagNetwork& network, const DagRules& rules, const Shortlist* sentence_shortlist, const float* states,
        std::size_t vertices, ThreadTeam& team);

    std::size_t vertices() const { return vertices_; }
    // Compute the top tokens of some vertices, skipping known ones.
    void rank(std::vector<std::size_t> vertices_to_rank);
    bool ranked(std::size_t vertex) const { return ranked_[vertex] != 0; }
    // [W] log-probabilities of the top tokens of a vertex, best first, padded with minus infinity. The first vertex emits only BOS,
    // the last one only EOS.
    const float* scores(std::size_t vertex) const { return scores_.data() + vertex * num_tokens_; }
    const std::int64_t* ids(std::size_t vertex) const { return ids_.data() + vertex * num_tokens_; }
    // The number of next vertices that may follow a vertex.
    std::size_t band() const { return band_; }
    // [band] log E(vertex -> vertex + 1 + d); minus infinity beyond the last vertex.
    const float* transitions(std::size_t vertex);

  private:
    void store_tokens(std::size_t vertex, const TopTokens& top_tokens, std::size_t row);

    const DagNetwork& network_;
    const DagRules& rules_;
    Vocabulary vocabulary_;
    TokenRules token_rules_;  // in terms of indices in the shortlist, if there is one
    const float* states_;
    ThreadTeam& team_;
    std::size_t vertices_, num_tokens_, padded_, band_;
    std::vector<char> ranked_, has_transitions_;  // vertices with known tokens, with known transitions
    std::vector<float> scores_;
    std::vector<std::int64_t> ids_;
    Buffer links_, keys_, head_scores_, transitions_;  // [vertices,2D+H]; [D,padded]; [H,padded]; [vertices,band]
};

// Call use(sentence, dag) for each sentence, from any of the threads; with `ranked` the tokens of all vertices are known. `sizes`
// are numbers of vertices, by sentence or, if the network predicts lengths, by length class. A DAG is bit-identical in any batch.
void for_each_dag(const DagNetwork& network, const Sources& sources, const std::vector<std::int64_t>& sizes, const DagRules& rules,
                  bool ranked, int threads, const std::function<void(std::size_t, Dag&)>& use);

struct DagOutput {
    std::vector<std::int64_t> ids;  // tokens of the vertices between the ends
    double score;                   // of transitions and tokens, the ends included
};

// Follow from vertex 0 on the transition with the highest log E(i -> j) plus `token_weight` times the score of the best token of j.
// Tokens are computed only where needed: with a weight of 0 on the path; else on that path and where a transition alone scores
// higher than the best sum.
DagOutput follow(Dag& dag, float token_weight);

}  // namespace fewstep

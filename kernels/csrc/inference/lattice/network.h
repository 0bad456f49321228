// The scoring network of a lattice (Deng and Rush 2021): a Transformer decoder whose rows each see one token, that of the previous
// slot.
// A row (p, y) has the input token y at position p and predicts slot p. Its self-attention has a single key, so the softmax is 1
// and the block is the linear map  x -> W_o (W_v x + b_v) + b_o,  independent of queries, keys and heads. In the first layer its
// input is token + position, and the map reduces to sums of rows of two precomputed tables:
//     post-norm     A[y] + B[p],  A = (I + M) sqrt(D) E,  B = (I + M) P + c                  with M = W_o W_v and c = W_o b_v + b_o
//     pre-norm      x + (A[y] + B[p]) / sigma + c'  with x = sqrt(D) E[y] + P[p] of mean m and deviation sigma,
//                   A = M G (sqrt(D) E - mean), B = M G (P - mean), c' = M b_norm + c and the scale G of the norm
// The weights of cross-attention are folded into the encoder states of a sentence, because many rows attend to few positions: with
// the keys k_s and values v_s of a head
//     scores[h,s] = x . (W_q^T k_s) / sqrt(d) + ...      output = sum_{h,s} softmax(scores[h])[s] (W_o v_s)
// are two products with matrices of H S rows instead of four products.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "csrc/inference/gemm/quantized_matrix.h"
#include "csrc/inference/network/transformer.h"

namespace fewstep {

// The matrices of a decoder layer for rows that see only themselves and a source.
struct LatticeLayer {
    PackedMatrix self_attention;  // [D,D] M, with bias c
    QuantizedMatrix quantized_self_attention;
    std::vector<PackedMatrix> queries;  // [H] of [D,d]: W_q^T of a head / sqrt(d)
    std::vector<PackedMatrix> outputs;  // [H] of [D,d]: the part of W_o of a head
    std::vector<float> query_bias;      // [D] / sqrt(d)
    std::vector<float> output_bias;     // [D]
};

// The folded cross-attention of one sentence in one layer.
struct LatticeCrossCache {
    PackedMatrix scores;  // [H S rounded up,D]
    PackedMatrix mix;     // [D,H S]
    QuantizedMatrix quantized_scores, quantized_mix;
};

struct LatticeNetwork {
    // Sums over the whole vocabulary are float32 in any precision.
    LatticeNetwork(const TransformerShape& shape, const Arrays& arrays, Precision precision);

    Precision precision() const { return precision_; }
    // Fold the states [S,D] of a source into the cross-attention of each layer.
    std::vector<LatticeCrossCache> project_memory(const float* states, std::size_t length) const;

    // Scratch memory of a thread.
    struct Workspace {
        Buffer x, normed, scores, weights, inner;
        QuantizedRows scratch;
    };
    struct Row {
        std::int64_t token;
        std::size_t slot;
    };
    // Return the states [rows,D] of rows of one sentence with S source positions, in `workspace.x`.
    const float* states(std::span<const Row> rows, const std::vector<LatticeCrossCache>& cross_cache, std::size_t length,
                        Workspace& workspace) const;

    Transformer network;
    std::vector<LatticeLayer> layers;

  private:
    void embed_rows(std::span<const Row> rows, float* x) const;
    void add_cross_attention(const LatticeCrossCache& cross_cache, std::size_t length, const float* input, std::size_t rows,
                             Workspace& workspace) const;

    void add_feed_forward(std::size_t layer, std::size_t rows, Workspace& workspace) const;

    Precision precision_;
    std::size_t token_stride_;                // D, or 2 D with pre-norm
    Buffer token_table_, slot_table_;         // [V,stride] A, or sqrt(D) E and A; [T,stride] B, or P and B
    std::vector<float> self_attention_bias_;  // [D] c', with pre-norm
};

}  // namespace fewstep

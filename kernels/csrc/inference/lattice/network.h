// The scorer of a lattice (Deng and Rush 2021): a Transformer decoder whose rows each see one word, that of the slot before.
//
// A row (p, y) holds the word y at position p and predicts slot p. Its self-attention has one key, itself, so that the softmax is 1 and
// the block the linear map  x -> W_o (W_v x + b_v) + b_o  (called `passing` here), which queries, keys and heads do not enter. In the
// first layer it acts on word + position, and comes down to sums of rows of two tables that are made once:
//
//     norm after    A[y] + B[p],  A = (I + M) sqrt(D) E,  B = (I + M) P + c                  with M = W_o W_v and c = W_o b_v + b_o
//     norm before   x + (A[y] + B[p]) / sigma + c'  with x = sqrt(D) E[y] + P[p] of mean m and deviation sigma,
//                   A = M G (sqrt(D) E - mean), B = M G (P - mean), c' = M b_norm + c and G the norm's scale
//
// Cross-attention is folded for each sentence, since many rows read few places: with the keys k_s and values v_s of a head
//
//     scores[h,s] = x . (W_q^T k_s) / sqrt(d) + ...      mixed = sum_{h,s} softmax(scores[h])[s] (W_o v_s)
//
// are two products with matrices of H S rows, instead of four with wider ones.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "csrc/inference/gemm/quantized_matrix.h"
#include "csrc/inference/network/transformer.h"

namespace fewstep {

// What a decoder layer is for rows that see themselves and a source.
struct LatticeLayer {
    PackedMatrix self_attention;               // [D,D] M, with c
    QuantizedMatrix quantized_self_attention;
    std::vector<PackedMatrix> queries;  // [H] of [D,d]: W_q^T of a head / sqrt(d)
    std::vector<PackedMatrix> outputs;  // [H] of [D,d]: W_o's part of a head
    std::vector<float> query_bias;      // [D] / sqrt(d)
    std::vector<float> output_bias;     // [D]
};

// What rows read of one sentence in one layer.
struct LatticeCrossCache {
    PackedMatrix scores;  // [H S rounded up,D]
    PackedMatrix mix;     // [D,H S]
    QuantizedMatrix quantized_scores, quantized_mix;
};

struct LatticeNetwork {
    // Sums over the whole vocabulary are in float whatever the precision of products.
    LatticeNetwork(const TransformerShape& shape, const Arrays& arrays, Precision precision);

    Precision precision() const { return precision_; }
    // States [S,D] of a source to what the rows of each layer read.
    std::vector<LatticeCrossCache> project_memory(const float* states, std::size_t length) const;

    // Scratch of a thread.
    struct Workspace {
        Buffer x, normed, scores, weights, inner;
        QuantizedRows scratch;
    };
    struct Row {
        std::int64_t token;
        std::size_t slot;
    };
    // States [rows,D] of rows of one sentence with S places, in `space.x`.
    const float* states(std::span<const Row> rows, const std::vector<LatticeCrossCache>& cross_cache, std::size_t length, Workspace& workspace) const;

    Transformer network;
    std::vector<LatticeLayer> layers;

 private:
    void embed_rows(std::span<const Row> rows, float* x) const;
    void add_cross_attention(const LatticeCrossCache& cross_cache, std::size_t length, const float* input, std::size_t rows, Workspace& workspace) const;

    void add_feed_forward(std::size_t layer, std::size_t rows, Workspace& workspace) const;

    Precision precision_;
    std::size_t token_stride_;           // D, or 2 D with the norm before
    Buffer token_table_, slot_table_;              // [V,stride] A, or sqrt(D) E beside A; [T,stride] B, or P beside B
    std::vector<float> self_attention_bias_;    // [D] c', with the norm before
};

}  // namespace fewstep

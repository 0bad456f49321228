// Log-probabilities of a few tokens for each row of logits, and their gradient, in one pass over a row while it is in the cache.
#pragma once

#include <cstddef>
#include <cstdint>

namespace fewstep {

// Rows of a batch of B sentences with M tokens each and DAGs of L vertices.
struct TokenRows {
    const std::int64_t* rows;     // [R] b L + j: row of logits of vertex j of sentence b
    std::size_t count;            // R
    const std::int64_t* targets;  // [B,M]
    std::size_t tokens;           // M
    std::size_t vertices;         // L
    std::size_t vocabulary;       // V
    float smoothing;              // label smoothing e
};

// With logits x [R,V], float32 or bfloat16 bits, and n = log sum_v e^x_v of each row,
//     scores[b,t,j] = (1 - e) x[y_bt] + e mean_v x_v - n        best[b,j] = the first v of the highest x_v
// `normalisers` [R] receives n; `best` [B,L] may be null. Cells without a row are not written.
template <typename Logit>
void token_scores(const TokenRows& batch, const Logit* logits, float* scores, float* normalisers, std::int64_t* best, int threads);

// Replace the logits by the gradient of sum_btj upstream[b,t,j] (scores[b,t,j] - c n^2), where c is `penalty`: with g_t =
// upstream[b,t,j], G = sum_t g_t and p_v = e^(x_v - n)
//     d/dx_v = e G / V - G (1 + 2 c n) p_v + (1 - e) sum over t with y_bt = v of g_t
template <typename Logit>
void token_gradients(const TokenRows& batch, Logit* logits, const float* normalisers, const float* upstream, float penalty,
                     int threads);

}  // namespace fewstep

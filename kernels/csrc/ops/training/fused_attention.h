// Attention and its gradients for training, softmax(Q K^T / sqrt(d)) V, one head of one sentence at a time, and some of its
// queries, so that few weights are held in memory.
#pragma once

#include <cstddef>
#include <cstdint>

#include "csrc/ops/training/dropout.h"

namespace fewstep {

// [B,H,rows,d] with arbitrary strides of the rows: float32, or bfloat16 as bits.
template <typename Value>
struct HeadRows {
    Value* values;
    std::ptrdiff_t sentence_stride, head_stride, row_stride;

    Value* at(std::size_t sentence, std::size_t head) const {
        return values + static_cast<std::ptrdiff_t>(sentence) * sentence_stride + static_cast<std::ptrdiff_t>(head) * head_stride;
    }
};

struct AttentionShape {
    std::size_t sentences, heads, queries, keys, size;  // B, H, T, S, d
    const bool* visible;                                // [B,S] visible keys; null: all
    bool causal;                                        // query t sees keys up to t
    Dropout dropout;                                    // of the weights; query t of head h of sentence b has row (b H + h) T + t
};

// o_t = sum_s m_ts p_ts v_s with p_ts = exp(q_t k_s / sqrt(d) - n_t), where n_t is the log of the normaliser and m the mask of
// dropout; `normalisers` [B,H,T] receives n. A query without visible keys gets zeros.
template <typename Value>
void fused_attention(const AttentionShape& shape, const HeadRows<const Value>& queries, const HeadRows<const Value>& keys,
                     const HeadRows<const Value>& values, const HeadRows<Value>& output_rows, float* normalisers, int threads);

template <typename Value>
struct AttentionGradients {
    HeadRows<Value> queries, keys, values;
};

// With the gradient g_t of o_t and u_ts = p_ts (m_ts g_t v_s - sum_r m_tr p_tr g_t v_r) / sqrt(d)
//     d/dq_t = sum_s u_ts k_s      d/dk_s = sum_t u_ts q_t      d/dv_s = sum_t m_ts p_ts g_t
template <typename Value>
void fused_attention_gradients(const AttentionShape& shape, const HeadRows<const Value>& queries, const HeadRows<const Value>& keys,
                               const HeadRows<const Value>& values, const float* normalisers, const HeadRows<const Value>& upstream,
                               const AttentionGradients<Value>& gradients, int threads);

}  // namespace fewstep

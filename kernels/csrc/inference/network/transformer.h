// The Transformer (Vaswani et al. 2017) for inference: layers with packed weights, applied to rows of any sentences.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "csrc/base/thread_team.h"
#include "csrc/inference/gemm/int8_matrix.h"
#include "csrc/inference/gemm/packed_matrix.h"
#include "csrc/inference/gemm/quantized_matrix.h"
#include "csrc/inference/network/attention.h"
#include "csrc/inference/network/layer_norm.h"

namespace fewstep {

// The weights of a network by name, each read with the sizes that the network needs.

class Arrays {
  public:
    void add(const std::string& name, const float* values, std::vector<std::size_t> sizes) {
        arrays_.insert_or_assign(name, Array{values, std::move(sizes)});
    }
    bool has(const std::string& name) const { return arrays_.contains(name); }
    // Return the values of an array of these sizes. Throws std::invalid_argument for one that is missing or has others.
    const float* at(const std::string& name, std::initializer_list<std::size_t> sizes) const;

  private:
    struct Array {
        const float* values;
        std::vector<std::size_t> sizes;
    };
    std::map<std::string, Array> arrays_;
};

// The lexicon from which shortlists of target tokens are made (Jean et al. 2015, section 3.3).

// The size of a shortlist: `tokens` common tokens (0: no shortlist, all tokens are candidates) and `links` translations of each
// source token.
struct ShortlistOptions {
    std::size_t tokens = 0, links = 0;
};

struct Lexicon {
    std::vector<std::int64_t> common_tokens;  // most frequent first, eos among them
    std::vector<std::int64_t>
        linked_tokens;       // [source vocabulary,links] translations of each source token, best first, padded with -1
    std::size_t links = 0;   // maximum per token; 0: no translations are known
    Int8Rows int8;           // rows of the target vocabulary in int8,
    Int8Matrix common_int8;  // and those of the common tokens as a matrix; empty if shortlists are ranked in float32

    // Rank shortlists in int8 from now on.
    void quantize(const PackedMatrix& vocabulary) {
        int8 = Int8Rows(vocabulary);
        common_int8 = Int8Matrix(int8, common_tokens);
    }
    bool quantized() const { return common_int8.outputs() > 0; }
    // Return the distinct tokens of the shortlist of a source, the common tokens first.
    std::vector<std::int64_t> shortlist_tokens(std::span<const std::int64_t> source, const ShortlistOptions& rules,
                                               std::size_t target_vocabulary) const;
};

struct TransformerShape {
    std::size_t encoder_layers, decoder_layers;
    std::size_t width, inner;  // D; hidden units of a feed-forward block
    std::size_t heads;
    bool pre_norm;  // x + block(norm(x)), with one more norm after the last layer; else norm(x + block(x))
    std::size_t source_vocabulary, target_vocabulary;  // sizes of the vocabularies
    std::size_t source_positions, slots;               // rows of the position tables
    Epilogue activation = Epilogue::RELU;              // of the feed-forward blocks
    bool scale_embeddings = true;

    // The factor of embeddings, sqrt(D) or 1.
    float embedding_scale() const { return scale_embeddings ? std::sqrt(static_cast<float>(width)) : 1.0F; }
};

struct FeedForward {
    PackedMatrix widen, narrow;
    LayerNorm norm;
    Epilogue activation;
};

struct EncoderLayer {
    PackedMatrix projection, output;  // queries, keys and values in one projection
    LayerNorm norm;
    FeedForward feed_forward;
};

struct DecoderLayer {
    PackedMatrix projection, output;
    LayerNorm norm;
    PackedMatrix cross_queries, cross_projection, cross_output;
    LayerNorm cross_norm;
    FeedForward feed_forward;
};

// The matrices of a layer in the precision of a network, if it is not float32.
struct QuantizedLayer {
    QuantizedLayer() = default;
    QuantizedLayer(const EncoderLayer& layer, Precision precision)
        : projection(layer.projection, precision),
          output(layer.output, precision),
          widen(layer.feed_forward.widen, precision),
          narrow(layer.feed_forward.narrow, precision) {}
    QuantizedLayer(const DecoderLayer& layer, Precision precision)
        : projection(layer.projection, precision),
          output(layer.output, precision),
          widen(layer.feed_forward.widen, precision),
          narrow(layer.feed_forward.narrow, precision),
          cross_queries(layer.cross_queries, precision),
          cross_projection(layer.cross_projection, precision),
          cross_output(layer.cross_output, precision) {}

    QuantizedMatrix projection, output, widen, narrow, cross_queries, cross_projection, cross_output;
};

// Sources [B,S] with `lengths`, rows of a padded table.
struct Sources {
    const std::int64_t* ids;
    std::size_t stride;
    std::vector<std::int64_t> lengths;
    std::vector<std::size_t> rows;  // by sentence: row of the table

    std::span<const std::int64_t> sentence(std::size_t position) const {
        return {ids + rows[position] * stride, static_cast<std::size_t>(lengths[position])};
    }
};

// Keys and values of the encoder states for each decoder layer and sentence.
struct CrossCache {
    std::vector<std::vector<KeyValues>> layers;  // [decoder layers][B]
    Buffer floats;                               // storage of `layers`
};

struct Transformer {
    // `fewstep/networks/transformer.py` lists the arrays; matrices are [outputs,inputs]. Throws std::invalid_argument for sizes
    // that no network has, and for arrays that are missing or have others.
    Transformer(const TransformerShape& shape, const Arrays& arrays);

    // Multiply in this precision from now on, in layers, and with int8 in the output projection too.
    void quantize(Precision precision);
    // Give some tokens a probability of 0 from now on. Called before `quantize`.
    void exclude(std::span<const std::int64_t> tokens);

    // Return the encoder states [rows,D], sentences one after the other.
    Buffer encoder_states(const Sources& sources, ThreadTeam& team) const;
    // Project encoder states to the keys and values of the decoder, layer by layer into an allocated cache.
    CrossCache allocate_cross_cache(const Sources& sources) const;
    void project_memory(const Sources& sources, const float* states, std::size_t layer, CrossCache& cross_cache) const;
    CrossCache cross_cache(const Sources& sources, const float* states, ThreadTeam& team) const;
    CrossCache encode(const Sources& sources, ThreadTeam& team) const {
        return cross_cache(sources, encoder_states(sources, team).data(), team);
    }

    TransformerShape shape;
    Heads heads;
    std::vector<EncoderLayer> encoder;
    std::vector<DecoderLayer> decoder;
    std::vector<QuantizedLayer> quantized_encoder, quantized_decoder;
    LayerNorm encoder_norm, decoder_norm;  // used with pre_norm
    std::vector<float> source_embedding, target_embedding, source_positions,
        slot_codes;                  // [rows,D]; an empty source_embedding is shared with the target
    std::vector<float> logits_bias;  // [target vocabulary] or empty; minus infinity for tokens that are never written
    PackedMatrix vocabulary;         // output projection, tied to the target embedding
    QuantizedMatrix quantized_vocabulary;
    Lexicon lexicon;  // empty: no shortlists
};

// A residual block: x [rows,D] becomes x + block(norm(x)) (pre-norm) or norm(x + block(x)). `block(input)` adds to x.
template <typename Block>
void residual(const LayerNorm& norm, bool pre_norm, float* x, std::size_t rows, float* normed, const Block& block) {
    if (pre_norm) {
        norm.apply(x, rows, normed);
        block(normed);
    } else {
        block(x);
        norm.apply(x, rows, x);
    }
}

}  // namespace fewstep

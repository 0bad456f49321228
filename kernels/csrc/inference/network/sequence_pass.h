// A pass of whole sequences through Transformer layers without a causal mask: every position sees all positions of its sequence.
#pragma once

#include <cstddef>
#include <vector>

#include "csrc/base/thread_team.h"
#include "csrc/inference/network/transformer.h"

namespace fewstep {

// The rows are partitioned among the threads of a team, which synchronise once a layer, before they read the keys of other parts. A
// part has few rows, so that what passes between its products stays in the nearer caches. The result of a row does not depend on
// the partition.
class SequencePass {
  public:
    SequencePass(const Transformer& model, std::vector<std::size_t> lengths, ThreadTeam& team);

    void encode(const EncoderLayer& layer, const QuantizedLayer& quantized);
    void decode(const DecoderLayer& layer, const QuantizedLayer& quantized, const std::vector<KeyValues>& sources);

    float* x() { return x_.data(); }  // [rows,D], sequences one after the other
    Buffer states() && { return std::move(x_); }
    std::size_t rows() const { return starts_.back(); }

  private:
    // Scratch memory of a thread, for the rows of a part.
    struct Workspace {
        Attention attention;
        QuantizedRows scratch;
        Buffer normed, mixed, wide;
    };
    // Rows [first,last), with the scratch memory of their thread.
    struct Part {
        std::size_t first, last;
        float *x, *queries;
        Workspace& workspace;
        ThreadTeam& team;  // threads that share its products, if there is only one part

        std::size_t rows() const { return last - first; }
        float* normed() const { return workspace.normed.data(); }
        float* mixed() const { return workspace.mixed.data(); }
        float* wide() const { return workspace.wide.data(); }
    };
    std::size_t num_parts() const;
    template <typename Body>
    void for_each_part(const Body& body);
    template <typename Body>
    void for_each_sequence(const Part& part, const Body& body) const;
    void multiply(const PackedMatrix& matrix, const QuantizedMatrix& quantized, const Part& part, const float* x, float* y,
                  Epilogue epilogue) const;
    template <typename Layer>
    void project(const Layer& layer, const QuantizedLayer& quantized, const Part& part);
    template <typename Layer>
    void add_self_attention(const Layer& layer, const QuantizedLayer& quantized, const Part& part) const;
    void add_cross_attention(const DecoderLayer& layer, const QuantizedLayer& quantized, const std::vector<KeyValues>& sources,
                             const Part& part) const;
    void add_feed_forward(const FeedForward& block, const QuantizedLayer& quantized, const Part& part) const;

    const Transformer& model_;
    ThreadTeam& team_;
    std::vector<std::size_t> starts_;  // first row of each sequence, and the number of rows
    Buffer x_, queries_;               // [rows,D]
    Buffer packed_;                    // keys and values of all sequences,
    std::vector<float*> keys_;         // and where those of each begin
    std::vector<Workspace> workspaces_;
};

}  // namespace fewstep

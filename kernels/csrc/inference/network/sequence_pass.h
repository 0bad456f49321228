// Whole sequences on their way through the layers of a Transformer, each of whose places sees all places of its own sequence.
#pragma once

#include <cstddef>
#include <vector>

#include "csrc/base/thread_team.h"
#include "csrc/inference/network/transformer.h"

namespace fewstep {

// Rows are shared out among the threads of a team, which wait for each other once a layer, before the rows of others are read. What
// becomes of a row does not depend on who else is in its part.
class SequencePass {
 public:
    SequencePass(const Transformer& model, std::vector<std::size_t> lengths, Team& team);

    void encode(const EncoderLayer& layer, const NarrowLayer& narrow);
    void decode(const DecoderLayer& layer, const NarrowLayer& narrow, const std::vector<Sequence>& sources);

    float* x() { return x_.data(); }  // [rows,D], sequence after sequence
    Buffer states() && { return std::move(x_); }
    std::size_t rows() const { return starts_.back(); }

 private:
    // Rows [first,last), with what their thread may write to.
    struct Part {
        std::size_t first, last;
        float *x, *normed, *mixed, *wide;
        Attention& attention;
        NarrowRows& scratch;
        Team& team;  // that shares out its products: of a part that is all there is

        std::size_t rows() const { return last - first; }
    };
    template <typename Body>
    void in_parts(const Body& body);
    template <typename Body>
    void each_sequence(const Part& part, const Body& body) const;
    template <typename Layer>
    void project(const Layer& layer, const NarrowLayer& narrow, const Part& part);
    template <typename Layer>
    void attend_to_own(const Layer& layer, const NarrowLayer& narrow, const Part& part) const;
    void attend_to_sources(const DecoderLayer& layer, const NarrowLayer& narrow, const std::vector<Sequence>& sources, const Part& part) const;
    void feed_forward(const FeedForward& block, const NarrowLayer& narrow, const Part& part) const;

    const Transformer& model_;
    Team& team_;
    std::vector<std::size_t> starts_;  // the first row of each sequence, and behind the last
    std::size_t wide_width_;
    Buffer x_, normed_, mixed_, wide_;
    Buffer turned_;                    // keys and values of all sequences,
    std::vector<float*> keys_;         // and where those of each begin
    struct Space {
        Attention attention;
        NarrowRows scratch;
    };
    std::vector<Space> spaces_;
};

}  // namespace fewstep

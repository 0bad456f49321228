// The tokens that would repeat an n-gram of the output that they continue.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace fewstep {

// Slots that are equal modulo `directions` are adjacent in the output. No n-gram of such tokens occurs twice in an output.
struct RepeatRules {
    std::size_t ngram = 0;  // n; 0: no limit
    std::size_t directions = 1;
};

// The outputs of rows that are written in steps of z tokens, at most one for each direction.
class Repeats {
  public:
    Repeats(const RepeatRules& rules, std::size_t step_size, std::size_t rows)
        : rules_(rules), step_size_(step_size), written_(rows), banned_(rows * step_size) {}

    // Append the tokens [R,z] of a step (empty in the first), and return the tokens [R*z] that the next slots may not hold.
    std::span<const std::vector<std::int64_t>> banned_after(std::span<const std::int64_t> previous);
    // Continue with these rows.
    void select(std::span<const std::int64_t> rows);

  private:
    void ban(const std::vector<std::int64_t>& written, std::size_t slot, std::vector<std::int64_t>& banned) const;

    RepeatRules rules_;
    std::size_t step_size_;
    std::vector<std::vector<std::int64_t>> written_;  // by row, in writing order
    std::vector<std::vector<std::int64_t>> banned_;
};

}  // namespace fewstep

#include "csrc/inference/aggressive/sentence_state.h"

namespace fewstep {

void Line::write(std::int64_t token, std::int64_t eos, float score_of_it, const float* best) {
    score += score_of_it;
    if (best[1] > -std::numeric_limits<float>::infinity()) margin = std::min(margin, static_cast<double>(best[0]) - static_cast<double>(best[1]));
    if (token == eos) ended = true;
    else tokens.push_back(token);
}

std::vector<Line> lines_of(const std::vector<std::int64_t>& limits, std::int64_t width) {
    std::vector<Line> lines(limits.size());
    for (std::size_t place = 0; place < lines.size(); ++place) {
        lines[place].sentence = place, lines[place].limit = limits[place], lines[place].width = width;
        lines[place].tried.resize(static_cast<std::size_t>(width)), lines[place].kept.resize(static_cast<std::size_t>(width));
    }
    return lines;
}

AggressiveOutcome outcome_of(Line&& line, const BeamOptions& options) {
    const double whole = penalty(options, line.size() + line.ended);
    return {std::move(line.tokens), line.score / whole, line.margin, line.steps, line.drafted, line.accepted, line.fell_back,
            std::move(line.tried), std::move(line.kept)};
}

void add(AggressiveTimes& sum, const AggressiveTimes& times) {
    sum.encoder += times.encoder, sum.drafter_encoder += times.drafter_encoder, sum.drafter += times.drafter;
    sum.verifier += times.verifier, sum.rest += times.rest;
}

}  // namespace fewstep

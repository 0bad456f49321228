// Threads of the kernels, for the sanitizers: teams that share loops, fail, end and are created again, and kernels with several
// threads whose results are equal to those with one.
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "csrc/base/parallel.h"
#include "csrc/base/thread_team.h"
#include "csrc/ops/align/aligner.h"

using namespace fewstep;

namespace {

void require(bool holds, const char* what) {
    if (holds) return;
    std::fprintf(stderr, "expected %s\n", what);
    std::exit(1);
}

// Many short loops, each writing an element of its own and a shared sum.
void share_loops(ThreadTeam& team) {
    for (std::size_t count : {0, 1, 2, 7, 64, 1000}) {
        std::vector<std::size_t> squares(count);
        std::atomic<std::size_t> sum{0};
        team.run(count, [&](std::size_t item, int thread) {
            require(0 <= thread && thread < team.threads(), "a thread of the team");
            squares[item] = item * item, sum += item;
        });
        for (std::size_t item = 0; item < count; ++item) require(squares[item] == item * item, "every item once");
        require(sum == count * (count - (count > 0)) / 2, "the sum of all items");
    }
}

void fail(ThreadTeam& team) {
    try {
        team.run(100, [](std::size_t item, int) {
            if (item == 37) throw std::runtime_error("item 37");
        });
        require(false, "the exception of an item");
    } catch (const std::runtime_error& error) {
        require(std::string(error.what()) == "item 37", "the exception of item 37");
    }
}

void teams() {
    for (int round = 0; round < 20; ++round) {
        ThreadTeam team(1 + round % 5);
        share_loops(team);
        fail(team);
        share_loops(team);
    }
    std::vector<std::jthread> callers;
    for (int caller = 0; caller < 3; ++caller)
        callers.emplace_back([caller] {
            for (int threads : {2, 4, 2}) share_loops(ThreadTeam::for_this_thread(threads + caller));
        });
}

void loops() {
    std::vector<int> found(500);
    parallel_for(500, 4, [&](std::int64_t item, int) { found[static_cast<std::size_t>(item)] = static_cast<int>(item) + 1; });
    for (int item = 0; item < 500; ++item) require(found[static_cast<std::size_t>(item)] == item + 1, "every item once");
    try {
        parallel_for(500, 4, [](std::int64_t item, int) {
            if (item % 50 == 7) throw std::invalid_argument("item");
        });
        require(false, "the exception of an item");
    } catch (const std::invalid_argument&) {
    }
}

Bitext text_of(int pairs) {
    Bitext text;
    std::uint32_t state = 1;
    const auto line = [&](char letter) {
        std::string words;
        for (std::uint32_t i = 0; i < 1 + state % 9; ++i) {
            state = state * 1664525u + 1013904223u;
            (words += letter) += std::to_string(state >> 28) + ' ';
        }
        return words;
    };
    for (int pair = 0; pair < pairs; ++pair) text.add_pair(line('e'), line('f'));
    text.measure();
    return text;
}

std::vector<std::int32_t> links_of(const Bitext& text, int threads) {
    const AlignOptions options{true, true, true, true, 0.08, 0.01, 1000};
    Aligner aligner(text.source, text.target, text.source_size, text.target_size, options, 4.0, true, threads);
    for (int pass = 0; pass < 3; ++pass) aligner.expect(threads), aligner.maximise(threads);
    return aligner.align(true, threads).sources;
}

}  // namespace

int main() {
    teams();
    loops();
    const Bitext text = text_of(300);
    const auto alone = links_of(text, 1);
    for (int threads : {2, 5}) require(links_of(text, threads) == alone, "the same links with any number of threads");
    std::puts("all hold");
}

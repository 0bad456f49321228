#include "csrc/base/thread_team.h"

#include <memory>

#if defined(__unix__) || defined(__APPLE__)
#include <unistd.h>
#endif

namespace fewstep {

namespace {

#if defined(__unix__) || defined(__APPLE__)
long process() { return getpid(); }
#else
long process() { return 0; }
#endif

}  // namespace

Team& Team::alone() {
    static Team team(1);
    return team;
}

Team& Team::waiting(int threads) {
    thread_local std::unique_ptr<Team> team;
    thread_local long home = process();
    if (home != process()) {  // a child has its parent's memory, but none of its threads to join
        static_cast<void>(team.release());
        home = process();
    }
    if (team == nullptr || team->threads() != threads) {
        team.reset();
        team = std::make_unique<Team>(threads);
    }
    return *team;
}

}  // namespace fewstep

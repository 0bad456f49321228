#include "csrc/base/thread_team.h"

#include <memory>

#if defined(__unix__) || defined(__APPLE__)
#include <unistd.h>
#endif

namespace fewstep {

namespace {

#if defined(__unix__) || defined(__APPLE__)
long process_id() { return getpid(); }
#else
long process_id() { return 0; }
#endif

}  // namespace

ThreadTeam& ThreadTeam::single() {
    static ThreadTeam team(1);
    return team;
}

ThreadTeam& ThreadTeam::for_this_thread(int threads) {
    thread_local std::unique_ptr<ThreadTeam> team;
    thread_local long owner = process_id();
    if (owner != process_id()) {  // after fork() the child has a copy of the team but not its threads, so they must not be joined
        static_cast<void>(team.release());
        owner = process_id();
    }
    if (team == nullptr || team->threads() != threads) {
        team.reset();
        team = std::make_unique<ThreadTeam>(threads);
    }
    return *team;
}

}  // namespace fewstep

// Start of threads, with an error that says how many there are.
#pragma once

#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace fewstep {

// The system refused to start another thread.
class ThreadError : public std::runtime_error {
  public:
    using std::runtime_error::runtime_error;
};

// Start a thread in the pool. Throws ThreadError.
template <typename Body>
void start_thread(std::vector<std::jthread>& pool, Body&& body) {
    try {
        pool.emplace_back(std::forward<Body>(body));
    } catch (const std::system_error& error) {
        throw ThreadError("threads: the system started " + std::to_string(pool.size()) + " and no further one (" +
                          error.code().message() + "); use fewer threads, or raise the limits of processes and memory");
    }
}

}  // namespace fewstep

// Parallel loops over independent items.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <mutex>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace fewstep {

// Start of threads, with an error that says how many there are.

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

// Call body(item, thread) for every item of [0, count), with thread in [0, threads). The assignment of items to threads is
// arbitrary, so a result must depend on the item alone. The first exception ends the loop and is rethrown to the caller. Throws
// ThreadError if a thread cannot be started.
template <typename Body>
void parallel_for(std::int64_t count, int threads, const Body& body) {
    const int workers = static_cast<int>(threads < count ? threads : count) - 1;
    if (workers < 1) {
        for (std::int64_t item = 0; item < count; ++item) body(item, 0);
        return;
    }
    std::atomic<std::int64_t> next{0};
    std::exception_ptr failure;
    std::mutex failure_mutex;
    const auto run_items = [&](int thread) {
        try {
            for (std::int64_t item; (item = next.fetch_add(1)) < count;) body(item, thread);
        } catch (...) {
            next.store(count);
            const std::lock_guard<std::mutex> guard(failure_mutex);
            if (!failure) failure = std::current_exception();
        }
    };
    {
        std::vector<std::jthread> pool;  // joins in its destructor, also after an exception
        pool.reserve(static_cast<std::size_t>(workers));
        for (int thread = 1; thread <= workers; ++thread) start_thread(pool, [&, thread] { run_items(thread); });
        run_items(0);
    }
    if (failure) std::rethrow_exception(failure);
}

}  // namespace fewstep

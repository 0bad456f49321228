// A team of threads that runs a sequence of short parallel loops; a loop starts in less than a microsecond.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "csrc/base/parallel.h"

namespace fewstep {

// The calling thread is a member of the team and takes the items that the workers do not reach in time.
class ThreadTeam {
  public:
    // Return the team of the calling thread. Its workers sleep between tasks, because creating threads would take longer than some
    // tasks.
    static ThreadTeam& for_this_thread(int threads);
    // Return a team of the calling thread only. It has no state, so any thread may use it at any time.
    static ThreadTeam& single();

    // Throws ThreadError if a thread cannot be started.
    explicit ThreadTeam(int threads) {
        try {
            for (int thread = 1; thread < threads; ++thread) start_thread(workers_, [this, thread] { serve(thread); });
        } catch (...) {
            stop();  // those that did start are joined next, and would wait for work
            throw;
        }
    }
    ~ThreadTeam() { stop(); }
    ThreadTeam(const ThreadTeam&) = delete;
    ThreadTeam& operator=(const ThreadTeam&) = delete;

    int threads() const { return static_cast<int>(workers_.size()) + 1; }

    // Call body(item, thread) for every item of [0, count) and return when all calls have returned. The assignment of items to
    // threads is arbitrary, so a result must depend on the item alone. The first exception is rethrown to the caller.
    template <typename Body>
    void run(std::size_t count, const Body& body) {
        if (workers_.empty() || count <= 1) {
            for (std::size_t item = 0; item < count; ++item) body(item, 0);
            return;
        }
        call_ = [](const void* to, std::size_t item, int thread) { (*static_cast<const Body*>(to))(item, thread); };
        body_ = &body, count_ = count;
        finished_.store(0, std::memory_order_relaxed);
        // The loop's number in the high bits, the items not yet taken in the low bits.
        const std::uint64_t generation = (state_.load(std::memory_order_relaxed) / GENERATION + 1) * GENERATION;
        state_.store(generation + count, std::memory_order_release);
        state_.notify_all();
        run_items(0);
        for (int spins = 0; finished_.load(std::memory_order_acquire) < count; ++spins)
            spins > SPIN_LIMIT ? std::this_thread::yield() : pause();
        if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
    }

  private:
    void stop() {
        stopping_.store(true);
        state_.fetch_add(GENERATION);
        state_.notify_all();
    }

    static constexpr std::uint64_t GENERATION = std::uint64_t{1} << 32;
    // Polls before a thread yields or sleeps: about a millisecond, more than the gap between two sentences of a text. Waking a
    // sleeping thread takes longer than decoding half a short sentence.
    static constexpr int SPIN_LIMIT = 20000;

    static void pause() {
#if defined(__x86_64__)
        __builtin_ia32_pause();
#endif
    }

    // Take items while there are any. The loop's body and count are read only by threads that hold one of its items; they stay
    // valid until all items are done.
    void run_items(int thread) {
        std::uint64_t state = state_.load(std::memory_order_acquire);
        while (state % GENERATION != 0) {
            if (!state_.compare_exchange_weak(state, state - 1, std::memory_order_acq_rel, std::memory_order_acquire)) continue;
            try {
                call_(body_, count_ - state % GENERATION, thread);
            } catch (...) {
                const std::lock_guard<std::mutex> guard(failure_mutex_);
                if (!failure_) failure_ = std::current_exception();
            }
            finished_.fetch_add(1, std::memory_order_acq_rel);
            state = state_.load(std::memory_order_acquire);
        }
    }

    void serve(int thread) {
        for (int spins = 0; !stopping_.load(std::memory_order_relaxed); ++spins) {
            const std::uint64_t state = state_.load(std::memory_order_acquire);
            if (state % GENERATION != 0) {
                run_items(thread);
                spins = 0;
            } else {
                spins > SPIN_LIMIT ? state_.wait(state) : pause();
            }
        }
    }

    const void* body_ = nullptr;
    void (*call_)(const void*, std::size_t, int) = nullptr;
    std::size_t count_ = 0;
    std::atomic<std::uint64_t> state_{0};
    std::atomic<std::size_t> finished_{0};
    std::atomic<bool> stopping_{false};
    std::exception_ptr failure_;
    std::mutex failure_mutex_;
    std::vector<std::jthread> workers_;  // last member, so that it is joined before the others are destroyed
};

}  // namespace fewstep

// Threads that stay together over the parts of a task: a part is handed out in less than a microsecond.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace fewstep {

// The caller is one of the threads, and does alone what the others come too late for.
class Team {
 public:
    // The team of this thread, whose helpers sleep between one task and the next: starting them would take longer than some tasks do.
    static Team& waiting(int threads);
    // The caller alone; there is no more to it, so that anyone may use it at any time.
    static Team& alone();

    explicit Team(int threads) {
        for (int thread = 1; thread < threads; ++thread) helpers_.emplace_back([this, thread] { help(thread); });
    }
    ~Team() {
        stopping_.store(true);
        open_.fetch_add(PART);
        open_.notify_all();
    }
    Team(const Team&) = delete;
    Team& operator=(const Team&) = delete;

    int threads() const { return static_cast<int>(helpers_.size()) + 1; }

    // Calls body(item, thread) for every item of [0, count) and returns when all have been done. Which thread takes an item is left
    // to chance: a result must depend on the item alone. The first exception is thrown to the caller.
    template <typename Body>
    void run(std::size_t count, const Body& body) {
        if (helpers_.empty() || count <= 1) {
            for (std::size_t item = 0; item < count; ++item) body(item, 0);
            return;
        }
        call_ = [](const void* to, std::size_t item, int thread) { (*static_cast<const Body*>(to))(item, thread); };
        body_ = &body, count_ = count;
        done_.store(0, std::memory_order_relaxed);
        // The part's number above, the items that nobody has taken yet below.
        const std::uint64_t part = (open_.load(std::memory_order_relaxed) / PART + 1) * PART;
        open_.store(part + count, std::memory_order_release);
        open_.notify_all();
        take(0);
        for (int turn = 0; done_.load(std::memory_order_acquire) < count; ++turn)
            turn > PATIENCE ? std::this_thread::yield() : rest();
        if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
    }

 private:
    static constexpr std::uint64_t PART = std::uint64_t{1} << 32;
    // Looks before a thread makes way for others: about a millisecond, more than lies between two sentences of one text. To wake a
    // thread that sleeps takes longer than to decode half a short sentence.
    static constexpr int PATIENCE = 20000;

    static void rest() {
#if defined(__x86_64__)
        __builtin_ia32_pause();
#endif
    }

    // Takes items while there are any. What belongs to a part is read only by who has an item of it: it stands until all are done.
    void take(int thread) {
        std::uint64_t open = open_.load(std::memory_order_acquire);
        while (open % PART != 0) {
            if (!open_.compare_exchange_weak(open, open - 1, std::memory_order_acq_rel, std::memory_order_acquire)) continue;
            try {
                call_(body_, count_ - open % PART, thread);
            } catch (...) {
                const std::lock_guard<std::mutex> guard(failing_);
                if (!failure_) failure_ = std::current_exception();
            }
            done_.fetch_add(1, std::memory_order_acq_rel);
            open = open_.load(std::memory_order_acquire);
        }
    }

    void help(int thread) {
        for (int turn = 0; !stopping_.load(std::memory_order_relaxed); ++turn) {
            const std::uint64_t open = open_.load(std::memory_order_acquire);
            if (open % PART != 0) {
                take(thread);
                turn = 0;
            } else {
                turn > PATIENCE ? open_.wait(open) : rest();
            }
        }
    }

    const void* body_ = nullptr;
    void (*call_)(const void*, std::size_t, int) = nullptr;
    std::size_t count_ = 0;
    std::atomic<std::uint64_t> open_{0};
    std::atomic<std::size_t> done_{0};
    std::atomic<bool> stopping_{false};
    std::exception_ptr failure_;
    std::mutex failing_;
    std::vector<std::jthread> helpers_;  // last: joined before anything else goes
};

}  // namespace fewstep

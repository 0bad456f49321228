// An uninitialised array of floats, aligned to cache lines, and to huge pages if it is large and the system has them.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <limits>
#include <memory>
#include <new>

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace fewstep {

class Buffer {
  public:
    Buffer() = default;
    explicit Buffer(std::size_t size) { reserve(size); }

    // Grow to at least `size` floats. Growing discards the contents.
    void reserve(std::size_t size) {
        if (size <= size_) return;
        constexpr std::size_t CACHE_LINE = 64, HUGE_PAGE = std::size_t{1} << 21;
        if (size > (std::numeric_limits<std::size_t>::max() - HUGE_PAGE) / sizeof(float)) throw std::bad_alloc();
        const std::size_t bytes = size * sizeof(float), alignment = bytes >= HUGE_PAGE ? HUGE_PAGE : CACHE_LINE;
        floats_.reset();
        auto* memory = static_cast<float*>(std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment));
        if (memory == nullptr) throw std::bad_alloc();
        floats_.reset(memory);
        size_ = size;
#if defined(__linux__)
        if (alignment == HUGE_PAGE) madvise(memory, bytes, MADV_HUGEPAGE);
#endif
    }

    float* data() { return floats_.get(); }
    const float* data() const { return floats_.get(); }
    std::size_t size() const { return size_; }

  private:
    struct FreeDeleter {
        void operator()(float* memory) const { std::free(memory); }
    };
    std::unique_ptr<float[], FreeDeleter> floats_;
    std::size_t size_ = 0;
};

}  // namespace fewstep

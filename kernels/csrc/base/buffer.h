// Uninitialised floats on a cache line's border, in large pages where they are many and the system has such.
#pragma once

#include <cstddef>
#include <cstdlib>
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

    // Room for `size` floats; what was there is lost where it grows.
    void reserve(std::size_t size) {
        if (size <= size_) return;
        constexpr std::size_t LINE = 64, PAGE = std::size_t{1} << 21;
        const std::size_t bytes = size * sizeof(float), border = bytes >= PAGE ? PAGE : LINE;
        floats_.reset();
        auto* memory = static_cast<float*>(std::aligned_alloc(border, (bytes + border - 1) / border * border));
        if (memory == nullptr) throw std::bad_alloc();
        floats_.reset(memory);
        size_ = size;
#if defined(__linux__)
        if (border == PAGE) madvise(memory, bytes, MADV_HUGEPAGE);
#endif
    }

    float* data() { return floats_.get(); }
    const float* data() const { return floats_.get(); }
    std::size_t size() const { return size_; }

 private:
    struct Free {
        void operator()(float* memory) const { std::free(memory); }
    };
    std::unique_ptr<float[], Free> floats_;
    std::size_t size_ = 0;
};

}  // namespace fewstep

#include "csrc/ops/training/dropout.h"

#include <algorithm>

#include "csrc/base/bfloat16.h"
#include "csrc/base/parallel.h"
#include "csrc/ops/training/dropout_mask.h"

namespace fewstep {

constexpr std::size_t ROW = std::size_t{1} << 16;

template <typename Value>
void dropout(const Dropout& options, const Value* x, Value* y, std::size_t count, int threads) {
    parallel_for(static_cast<std::int64_t>((count + ROW - 1) / ROW), threads, [&](std::int64_t row, int) {
        const DropoutMask mask(options, static_cast<std::uint64_t>(row));
        const std::size_t first = static_cast<std::size_t>(row) * ROW, size = std::min(ROW, count - first);
        const Value* const from = x + first;
        Value* const to = y + first;
        std::size_t unit = 0;
        for (; unit + F32_LANES <= size; unit += F32_LANES) store_rounded(to + unit, load(from + unit) * mask.factors(unit));
        const F32Vector last = mask.factors(unit);
        for (int lane = 0; unit < size; ++lane, ++unit) store_rounded(to + unit, to_float(from[unit]) * last[lane]);
    });
}

template void dropout(const Dropout&, const float*, float*, std::size_t, int);
template void dropout(const Dropout&, const std::uint16_t*, std::uint16_t*, std::size_t, int);

}  // namespace fewstep

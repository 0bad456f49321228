#include "csrc/ops/align/lcs.h"

#include <algorithm>
#include <vector>

namespace fewstep {

std::size_t lcs_length(std::span<const std::int64_t> a, std::span<const std::int64_t> b) {
    std::vector<std::size_t> row(b.size() + 1, 0);  // c(i, j) for all j, where c(i - 1, j) was
    for (const std::int64_t token : a) {
        std::size_t diagonal = 0;  // c(i - 1, j - 1)
        for (std::size_t j = 1; j <= b.size(); ++j) {
            const std::size_t above = row[j];
            row[j] = token == b[j - 1] ? diagonal + 1 : std::max(above, row[j - 1]);
            diagonal = above;
        }
    }
    return row.back();
}

}  // namespace fewstep

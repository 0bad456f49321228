#include "csrc/ops/align/lcs.h"

#include "bindings/arrays.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace fewstep {

namespace {

using Rows = nb::ndarray<const std::int64_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Lengths = Vector<std::int64_t>;

void check(const Rows& rows, const Lengths& lengths, std::size_t count, const std::string& name) {
    require(rows.shape(0) == count && lengths.size() == count, name + ": expected " + std::to_string(count) + " rows and lengths");
    const auto limit = static_cast<std::int64_t>(rows.shape(1));
    for (const std::int64_t length : view(lengths)) {
        const std::string expected = name + "_lengths: expected 0 to " + std::to_string(limit);
        require(length >= 0 && length <= limit, expected + ", got " + std::to_string(length));
    }
}

std::span<const std::int64_t> row_of(const Rows& rows, const Lengths& lengths, std::size_t index) {
    return {rows.data() + index * rows.shape(1), static_cast<std::size_t>(lengths.data()[index])};
}

Result<std::int64_t> lcs_lengths(const Rows& first, const Rows& second, const Lengths& first_lengths,
                                 const Lengths& second_lengths) {
    const std::size_t count = first.shape(0);
    check(first, first_lengths, count, "first");
    check(second, second_lengths, count, "second");
    std::vector<std::int64_t> found(count);
    {
        const nb::gil_scoped_release release;
        for (std::size_t index = 0; index < count; ++index)
            found[index] =
                static_cast<std::int64_t>(lcs_length(row_of(first, first_lengths, index), row_of(second, second_lengths, index)));
    }
    return own(std::move(found));
}

}  // namespace

void bind_lcs(nb::module_& module) {
    module.def("lcs_lengths", lcs_lengths, "first"_a.noconvert(), "second"_a.noconvert(), "first_lengths"_a.noconvert(),
               "second_lengths"_a.noconvert());
}

}  // namespace fewstep

// Fuzzer of n-gram models: what is accepted scores words and gives all n-grams.
#include <cmath>

#include "csrc/inference/ngram/model.h"
#include "input.h"

using namespace fewstep;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    return refused_or_read(copy_of(data, size), [](const std::string& path) {
        const NgramModel model = NgramModel::map(path);
        const auto scores = score_ngram_lines(model, "a b c\nb unbekannt\n\n", true, true, 1);
        for (const auto& sentence : scores)
            if (!std::isfinite(sentence.log_prob)) std::abort();
        std::size_t count = 0;
        for (int order = 1; order <= model.order(); ++order)
            model.for_each(order, [&](std::span<const std::uint32_t> ngram, float, float) { count += ngram.size(); });
    });
}

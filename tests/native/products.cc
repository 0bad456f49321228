// Matrix products of fixed numbers on one instruction-set level: prints a digest of their bits for each precision.
#include <cstdint>
#include <cstdio>
#include <random>
#include <vector>

#include "csrc/inference/gemm/quantized_matrix.h"

namespace {

using Floats = std::vector<float>;

Floats numbers(unsigned seed, std::size_t count) {
    std::mt19937 generator(seed);
    Floats values(count);
    for (float& value : values) value = static_cast<float>(generator() % 2001) / 1000.0f - 1.0f;
    return values;
}

}  // namespace

int main() {
    using fewstep::Precision;
    for (const auto precision : {Precision::FLOAT32, Precision::INT8, Precision::BFLOAT16}) {
        std::uint64_t digest = 14695981039346656037u;  // FNV-1a
        for (const std::size_t size : {1, 3, 16, 33, 70, 130}) {
            const std::size_t rows = 5, inputs = 2 * size + 1;
            const Floats weights = numbers(1, size * inputs), bias = numbers(2, size), x = numbers(3, rows * inputs);
            const fewstep::PackedMatrix matrix(weights.data(), bias.data(), size, inputs);
            const fewstep::QuantizedMatrix quantized(matrix, precision);
            fewstep::QuantizedRows scratch;
            Floats found(rows * size);
            fewstep::gemm(matrix, quantized, x.data(), rows, found.data(), fewstep::Epilogue::STORE, scratch);
            const auto* bytes = reinterpret_cast<const unsigned char*>(found.data());
            for (std::size_t i = 0; i < found.size() * sizeof(float); ++i) digest = (digest ^ bytes[i]) * 1099511628211u;
        }
        std::printf("%016llx\n", static_cast<unsigned long long>(digest));
    }
    return 0;
}

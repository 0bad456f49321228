// A self-test of the numeric code without Python, for processors that an emulator runs: products, normalisation, attention and sums
// over paths against plain loops in float64. Prints the levels that the processor runs; exits with 1 after a wrong result.
#include <cmath>
#include <cstdio>
#include <random>
#include <vector>

#include "csrc/base/processor.h"
#include "csrc/inference/gemm/quantized_matrix.h"
#include "csrc/inference/network/layer_norm.h"
#include "csrc/ops/dag/paths.h"
#include "csrc/ops/training/fused_attention.h"

namespace {

using Floats = std::vector<float>;

bool failed = false;

void expect_near(const char* name, double found, double expected, double tolerance) {
    if (std::abs(found - expected) <= tolerance) return;
    std::printf("%s: expected %.9g, got %.9g\n", name, expected, found);
    failed = true;
}

Floats numbers(unsigned seed, std::size_t count) {
    std::mt19937 generator(seed);
    std::normal_distribution<float> normal;
    Floats values(count);
    for (float& value : values) value = normal(generator);
    return values;
}

double gelu(double x) { return x * 0.5 * std::erfc(-x / std::sqrt(2.0)); }

// x W^T + b of one row and output, with GELU if asked for.
double product(const Floats& weights, const Floats& bias, const float* x, std::size_t output, bool with_gelu) {
    const std::size_t inputs = weights.size() / bias.size();
    double sum = bias[output];
    for (std::size_t input = 0; input < inputs; ++input) sum += double(x[input]) * weights[output * inputs + input];
    return with_gelu ? gelu(sum) : sum;
}

void test_products(std::size_t rows, std::size_t outputs, std::size_t inputs) {
    const Floats weights = numbers(1, outputs * inputs), bias = numbers(2, outputs), x = numbers(3, rows * inputs);
    const fewstep::PackedMatrix matrix(weights.data(), bias.data(), outputs, inputs);
    using fewstep::Precision;
    for (const auto [precision, tolerance] :
         {std::pair{Precision::FLOAT32, 1e-4}, {Precision::BFLOAT16, 0.5}, {Precision::INT8, 1.0}}) {
        const fewstep::QuantizedMatrix quantized(matrix, precision);
        fewstep::QuantizedRows scratch;
        for (const bool with_gelu : {false, true}) {
            const auto epilogue = with_gelu ? fewstep::Epilogue::GELU : fewstep::Epilogue::STORE;
            Floats together(rows * outputs), alone(outputs);
            fewstep::gemm(matrix, quantized, x.data(), rows, together.data(), epilogue, scratch);
            for (std::size_t row = 0; row < rows; ++row) {
                const float* values = x.data() + row * inputs;
                fewstep::gemm(matrix, quantized, values, 1, alone.data(), epilogue, scratch);
                for (std::size_t output = 0; output < outputs; ++output) {
                    const float found = together[row * outputs + output];
                    expect_near("product", found, product(weights, bias, values, output, with_gelu), tolerance);
                    expect_near("product of a row alone", alone[output], found, 0.0);
                }
            }
        }
    }
}

// Values and weights of 1 and -1 are the ends of the ranges of int8, and rounded without loss.
void test_largest_bytes(std::size_t outputs, std::size_t inputs) {
    Floats weights = numbers(12, outputs * inputs), x = numbers(13, inputs), found(outputs);
    for (Floats* values : {&weights, &x})
        for (std::size_t position = 0; position < values->size(); ++position)
            (*values)[position] = position % inputs < 8 || (*values)[position] > 0 ? 1.0F : -1.0F;
    const fewstep::PackedMatrix matrix(weights.data(), nullptr, outputs, inputs);
    fewstep::QuantizedRows scratch;
    fewstep::gemm(matrix, fewstep::QuantizedMatrix(matrix, fewstep::Precision::INT8), x.data(), 1, found.data(),
                  fewstep::Epilogue::STORE, scratch);
    for (std::size_t output = 0; output < outputs; ++output) {
        double sum = 0;
        for (std::size_t input = 0; input < inputs; ++input) sum += double(x[input]) * weights[output * inputs + input];
        expect_near("product of the largest bytes", found[output], sum, 1e-4 * double(inputs));
    }
}

void test_layer_norm(std::size_t width) {
    const Floats x = numbers(4, width), scale = numbers(5, width), shift = numbers(6, width);
    Floats found(width);
    fewstep::LayerNorm(scale.data(), shift.data(), width).apply(x.data(), 1, found.data());
    double mean = 0, variance = 0;
    for (const float value : x) mean += value / double(width);
    for (const float value : x) variance += (value - mean) * (value - mean) / double(width);
    for (std::size_t i = 0; i < width; ++i)
        expect_near("layer norm", found[i], (x[i] - mean) / std::sqrt(variance + 1e-5) * scale[i] + shift[i], 1e-4);
}

void test_attention(std::size_t queries, std::size_t keys, std::size_t size) {
    const Floats q = numbers(7, queries * size), k = numbers(8, keys * size), v = numbers(9, keys * size);
    Floats found(queries * size), normalisers(queries);
    const auto rows = [&](auto* values) {
        return fewstep::HeadRows<std::remove_pointer_t<decltype(values)>>{values, 0, 0, static_cast<std::ptrdiff_t>(size)};
    };
    const fewstep::AttentionShape shape{1, 1, queries, keys, size, nullptr, false};
    fewstep::fused_attention<float>(shape, rows(q.data()), rows(k.data()), rows(v.data()), rows(found.data()), normalisers.data(),
                                    1);
    for (std::size_t t = 0; t < queries; ++t) {
        double sum = 0;
        std::vector<double> expected(size);
        for (std::size_t s = 0; s < keys; ++s) {
            double score = 0;
            for (std::size_t i = 0; i < size; ++i) score += double(q[t * size + i]) * k[s * size + i];
            const double weight = std::exp(score / std::sqrt(double(size)));
            sum += weight;
            for (std::size_t i = 0; i < size; ++i) expected[i] += weight * v[s * size + i];
        }
        for (std::size_t i = 0; i < size; ++i) expect_near("attention", found[t * size + i], expected[i] / sum, 1e-4);
    }
}

// Three tokens, so that the middle one has L - 2 vertices to choose from.
void test_paths(std::size_t vertices) {
    const std::size_t band = vertices - 1;
    const Floats tokens = numbers(10, 3 * vertices), transitions = numbers(11, vertices * band);
    const std::int64_t target_length = 3, graph_length = static_cast<std::int64_t>(vertices);
    const fewstep::DagBatch batch{{tokens.data()}, {transitions.data()}, &target_length, &graph_length, 1, 3, vertices, band};
    double sum = 0;
    for (std::size_t middle = 1; middle + 1 < vertices; ++middle)
        sum += std::exp(double(tokens[0]) + transitions[middle - 1] + tokens[vertices + middle] +
                        transitions[middle * band + vertices - 2 - middle] + tokens[3 * vertices - 1]);
    for (const bool log_space : {false, true}) {
        double found = 0;
        fewstep::dag_log_likelihood(batch, log_space, 1, {nullptr, &found});
        expect_near("sum over paths", found, std::log(sum), 1e-9);
    }
}

}  // namespace

int main() {
    for (const auto& level : fewstep::processor_levels()) std::printf("%s ", level.c_str());
    std::printf("\n");
    for (const std::size_t size : {1, 3, 16, 33, 70}) {
        test_products(5, size, 2 * size + 1);
        test_largest_bytes(size, 4 * size + 4);
        test_layer_norm(size + 1);
        test_attention(4, size, 8);
        test_paths(size + 2);
    }
    return failed ? 1 : 0;
}

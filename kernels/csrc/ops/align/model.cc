#include "csrc/ops/align/model.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <map>
#include <numeric>
#include <sstream>
#include <stdexcept>

#include "csrc/ops/align/diagonal.h"

namespace fewstep {

static_assert(std::endian::native == std::endian::little, "files are little-endian");

namespace {

constexpr char MAGIC[8] = {'F', 'S', 'A', 'L', 'I', 'G', 'N', '1'};
constexpr double UNSEEN = 1e-9;
constexpr std::string_view NULL_WORD = "<eps>";

// The header of a file. It is followed by row_starts (rows + 1, 8 bytes each), t (cells, 8), columns (cells, 4), the ends of the
// words in the text (words, 8, aligned to 8), and the text.
struct FileHeader {
    char magic[8];
    std::uint64_t rows, cells, words, letters;
    double tension, length_ratio, p0, alpha;
    std::int64_t max_length;
    std::uint8_t diagonal, variational_bayes, null_word, compatible, reverse, unused[3];
};
static_assert(sizeof(FileHeader) == 88);

std::uint64_t padded(std::uint64_t bytes) { return (bytes + 7) / 8 * 8; }

std::uint64_t file_size(const FileHeader& header) {
    return sizeof(FileHeader) + 8 * (header.rows + 1) + 8 * header.cells + padded(4 * header.cells) + 8 * header.words +
           header.letters;
}

[[noreturn]] void fail(const char* path, const std::string& what) { throw std::runtime_error(std::string(path) + ": " + what); }

struct OwnedArrays {
    std::vector<std::uint64_t> row_starts;
    std::vector<std::uint32_t> columns;
    std::vector<double> t;
};

struct Mapping {
    void* at = MAP_FAILED;
    std::size_t size = 0;
    ~Mapping() {
        if (at != MAP_FAILED) munmap(at, size);
    }
};

std::shared_ptr<Mapping> map_file(const char* path) {
    const int descriptor = open(path, O_RDONLY | O_CLOEXEC);
    if (descriptor < 0) fail(path, std::string("cannot be read: ") + std::strerror(errno));
    struct stat status{};
    auto mapping = std::make_shared<Mapping>();
    if (fstat(descriptor, &status) == 0 && status.st_size >= static_cast<off_t>(sizeof(FileHeader))) {
        mapping->size = static_cast<std::size_t>(status.st_size);
        mapping->at = mmap(nullptr, mapping->size, PROT_READ, MAP_SHARED, descriptor, 0);
    }
    close(descriptor);
    if (mapping->at == MAP_FAILED) fail(path, "expected an alignment model, got a file that is too short or cannot be mapped");
    return mapping;
}

}  // namespace

AlignModel::AlignModel(const ModelHeader& header, const Support& support, const double* t, const Dictionary& words)
    : header_(header), words_(words) {
    auto built = std::make_shared<OwnedArrays>();
    built->row_starts = support.row_starts;
    built->columns.resize(support.cells());
    built->t.resize(support.cells());
    std::vector<std::uint64_t> order;
    for (std::int64_t row = 0; row < support.rows(); ++row) {
        const std::uint64_t start = support.row_starts[static_cast<std::size_t>(row)];
        order.resize(support.row_starts[static_cast<std::size_t>(row) + 1] - start);
        std::iota(order.begin(), order.end(), start);
        std::sort(order.begin(), order.end(), [&](auto a, auto b) { return support.columns[a] < support.columns[b]; });
        for (std::size_t k = 0; k < order.size(); ++k) {
            built->columns[start + k] = support.columns[order[k]];
            built->t[start + k] = t[order[k]];
        }
    }
    row_starts_ = built->row_starts;
    columns_ = built->columns;
    t_ = built->t;
    memory_ = built;
}

void AlignModel::save(const char* path) const {
    FileHeader header{};
    std::memcpy(header.magic, MAGIC, sizeof MAGIC);
    header.rows = static_cast<std::uint64_t>(rows());
    header.cells = cells();
    header.words = words_.size();
    for (std::uint32_t id = 0; id < words_.size(); ++id) header.letters += words_.word(id).size();
    header.tension = header_.tension;
    header.length_ratio = header_.length_ratio;
    header.p0 = header_.options.p0;
    header.alpha = header_.options.alpha;
    header.max_length = header_.options.max_length;
    header.diagonal = header_.options.diagonal;
    header.variational_bayes = header_.options.variational_bayes;
    header.null_word = header_.options.null_word;
    header.compatible = header_.options.compatible;
    header.reverse = header_.reverse;
    std::ofstream file(path, std::ios::binary);
    const auto put = [&](const void* data, std::size_t bytes) {
        file.write(static_cast<const char*>(data), static_cast<std::streamsize>(bytes));
    };
    put(&header, sizeof header);
    put(row_starts_.data(), row_starts_.size_bytes());
    put(t_.data(), t_.size_bytes());
    put(columns_.data(), columns_.size_bytes());
    put("\0\0\0\0\0\0\0", padded(columns_.size_bytes()) - columns_.size_bytes());
    std::uint64_t end = 0;
    for (std::uint32_t id = 0; id < words_.size(); ++id) {
        end += words_.word(id).size();
        put(&end, sizeof end);
    }
    for (std::uint32_t id = 0; id < words_.size(); ++id) put(words_.word(id).data(), words_.word(id).size());
    file.close();
    if (!file) fail(path, std::string("could not be written: ") + std::strerror(errno));
}

std::shared_ptr<const AlignModel> AlignModel::load(const char* path) {
    const std::shared_ptr<Mapping> mapping = map_file(path);
    const char* at = static_cast<const char*>(mapping->at);
    FileHeader header;
    std::memcpy(&header, at, sizeof header);
    if (std::memcmp(header.magic, MAGIC, sizeof MAGIC) != 0)
        fail(path, "expected an alignment model of format FSALIGN1, got another file");
    const std::uint64_t most = mapping->size;
    if (header.rows >= most || header.cells > most || header.words > most || header.letters > most || file_size(header) != most)
        fail(path, "expected a whole alignment model, got " + std::to_string(most) + " bytes; write it again");
    std::shared_ptr<AlignModel> model(new AlignModel);
    model->header_.options = {
        header.diagonal != 0, header.variational_bayes != 0, header.null_word != 0, header.compatible != 0, header.p0, header.alpha,
        header.max_length};
    model->header_.reverse = header.reverse != 0;
    model->header_.tension = header.tension;
    model->header_.length_ratio = header.length_ratio;
    at += sizeof header;
    model->row_starts_ = {reinterpret_cast<const std::uint64_t*>(at), header.rows + 1};
    at += model->row_starts_.size_bytes();
    model->t_ = {reinterpret_cast<const double*>(at), header.cells};
    at += model->t_.size_bytes();
    model->columns_ = {reinterpret_cast<const std::uint32_t*>(at), header.cells};
    at += padded(model->columns_.size_bytes());
    const std::span<const std::uint64_t> ends(reinterpret_cast<const std::uint64_t*>(at), header.words);
    at += ends.size_bytes();
    if (model->row_starts_.front() != 0 || model->row_starts_.back() != header.cells ||
        !std::is_sorted(model->row_starts_.begin(), model->row_starts_.end()) || !std::is_sorted(ends.begin(), ends.end()) ||
        (ends.empty() ? 0 : ends.back()) != header.letters)
        fail(path, "expected an alignment model, got one whose rows or words do not fit together; write it again");
    std::uint64_t start = 0;
    for (const std::uint64_t end : ends) {
        model->words_.add(std::string_view(at + start, end - start));
        start = end;
    }
    if (model->words_.size() != header.words) fail(path, "expected distinct words, got one twice; write the model again");
    model->memory_ = mapping;
    return model;
}

void AlignModel::write_text(const char* path, double beam) const {
    if (words_.size() == 0 && cells())
        throw std::invalid_argument("a model of numbers has no words to write as text; save it instead");
    if (words_.find(NULL_WORD) != Dictionary::ABSENT)
        throw std::invalid_argument(
            "the text holds the word `<eps>`, which this format cannot tell from the null word; save the model instead");
    std::ofstream file(path, std::ios::binary);
    for (std::int64_t row = 0; row < rows(); ++row) {
        const auto start = row_starts_[static_cast<std::size_t>(row)], end = row_starts_[static_cast<std::size_t>(row) + 1];
        if (start == end) continue;
        const double threshold = std::log(*std::max_element(&t_[start], &t_[start] + (end - start))) * beam;
        const std::string_view name = row ? words_.word(static_cast<std::uint32_t>(row - 1)) : NULL_WORD;
        for (std::uint64_t cell = start; cell < end; ++cell)
            if (const double value = std::log(t_[cell]); value >= threshold || std::isinf(beam))
                file << name << '\t' << words_.word(columns_[cell]) << '\t' << value << '\n';
    }
    file.close();
    if (!file) fail(path, std::string("could not be written: ") + std::strerror(errno));
}

std::shared_ptr<const AlignModel> AlignModel::read_text(const char* path, const ModelHeader& header) {
    std::ifstream file(path, std::ios::binary);
    if (!file) fail(path, std::string("cannot be read: ") + std::strerror(errno));
    Dictionary words;
    std::map<std::uint64_t, std::map<std::uint32_t, double>> rows;
    std::string line;
    for (std::int64_t number = 1; std::getline(file, line); ++number) {
        std::istringstream fields(line);
        std::string source, target, value, more;
        char* end = nullptr;
        double log_t = 0;
        if (fields >> source >> target >> value) log_t = std::strtod(value.c_str(), &end);
        if (!end || *end || value.empty() || !(log_t <= 1) || fields >> more)
            fail(path,
                 "line " + std::to_string(number) + ": expected `source target ln-probability`, got `" + line.substr(0, 80) + "`");
        const std::uint64_t row = source == NULL_WORD ? 0 : std::uint64_t{words.add(source)} + 1;
        rows[row][words.add(target)] = std::exp(log_t);
    }
    Support support;
    std::vector<double> t;
    for (std::uint64_t row = 0; row <= words.size(); ++row) {
        support.row_starts.push_back(t.size());
        if (const auto found = rows.find(row); found != rows.end())
            for (const auto& [column, value] : found->second) {
                support.columns.push_back(column);
                t.push_back(value);
            }
    }
    support.row_starts.push_back(t.size());
    return std::make_shared<const AlignModel>(header, support, t.data(), words);
}

double AlignModel::probability(std::uint64_t row, std::uint32_t column) const {
    if (row >= row_starts_.size() - 1) return UNSEEN;
    const auto begin = columns_.begin() + static_cast<std::ptrdiff_t>(row_starts_[row]);
    const auto end = columns_.begin() + static_cast<std::ptrdiff_t>(row_starts_[row + 1]);
    const auto found = std::lower_bound(begin, end, column);
    return found != end && *found == column ? t_[static_cast<std::size_t>(found - columns_.begin())] : UNSEEN;
}

ForcedPair force_align(const AlignModel& model, std::span<const std::uint32_t> source, std::span<const std::uint32_t> target) {
    const AlignOptions& options = model.header().options;
    const double tension = model.header().tension;
    const auto n = static_cast<std::uint32_t>(source.size()), m = static_cast<std::uint32_t>(target.size());
    const double uniform = 1.0 / (n + (options.null_word ? 1 : 0));
    ForcedPair forced{std::vector<std::int32_t>(m, -1), 0};
    for (std::uint32_t j = 1; j <= m; ++j) {
        double best = 0, total = 0;
        if (options.null_word) total = best = model.probability(0, target[j - 1]) * (options.diagonal ? options.p0 : uniform);
        const double partition = options.diagonal ? diagonal_partition(j, m, n, tension) / (1.0 - options.p0) : 1.0;
        for (std::uint32_t i = 1; i <= n; ++i) {
            const double prior = options.diagonal ? std::exp(diagonal_feature(j, i, m, n) * tension) / partition : uniform;
            // Dictionary::ABSENT + 1 is beyond all rows
            const double joint = model.probability(std::uint64_t{source[i - 1]} + 1, target[j - 1]) * prior;
            if (joint > best) {
                best = joint;
                forced.links[j - 1] = static_cast<std::int32_t>(i) - 1;
            }
            total += joint;
        }
        forced.log_likelihood += std::log(std::max(total, std::numeric_limits<double>::min()));
    }
    return forced;
}

double length_score(std::size_t target_words, std::size_t source_words, double length_ratio) {
    const double expected = 0.05 + static_cast<double>(source_words) * length_ratio;
    return std::log(expected) * static_cast<double>(target_words) - std::lgamma(static_cast<double>(target_words) + 1) - expected;
}

}  // namespace fewstep

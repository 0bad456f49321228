#include "csrc/ops/align/model.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <fstream>
#include <limits>
#include <map>
#include <numeric>
#include <sstream>
#include <stdexcept>

#include "csrc/base/files.h"
#include "csrc/ops/align/diagonal.h"

namespace fewstep {

static_assert(std::endian::native == std::endian::little, "files are little-endian");

namespace {

constexpr char MAGIC[8] = {'F', 'S', 'A', 'L', 'I', 'G', 'N', '2'};
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
    std::uint64_t body;   // checksum of the following sections, without padding
    std::uint64_t check;  // checksum of the preceding fields
};
static_assert(sizeof(FileHeader) == 104);

std::uint64_t checksum_of(const FileHeader& header) {
    return checksum(std::as_bytes(std::span(&header, 1)).first(offsetof(FileHeader, check)));
}

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

// Reads the sections of a file in order; the file has the size of all of them.
class SectionReader {
  public:
    explicit SectionReader(std::span<const std::byte> bytes) : bytes_(bytes) {}

    template <typename T>
    std::span<const T> take(std::uint64_t count) {
        const std::span<const T> values(reinterpret_cast<const T*>(bytes_.data()), static_cast<std::size_t>(count));
        bytes_ = bytes_.subspan(std::min<std::uint64_t>(bytes_.size(), padded(values.size_bytes())));
        return values;
    }

  private:
    std::span<const std::byte> bytes_;
};

bool are_ascending(std::span<const std::uint64_t> values, std::uint64_t last) {
    return std::is_sorted(values.begin(), values.end()) && (values.empty() ? 0 : values.back()) == last;
}

bool are_possible(const FileHeader& header) {
    const auto within = [](double value, double min, double max) { return min <= value && value <= max; };
    constexpr double MAX = std::numeric_limits<double>::max();
    return within(header.tension, 0, MAX) && within(header.length_ratio, 0, MAX) && within(header.p0, 0, 1) && header.p0 < 1 &&
           within(header.alpha, 0, MAX) && header.max_length >= 1 &&
           std::max({header.diagonal, header.variational_bayes, header.null_word, header.compatible, header.reverse}) <= 1;
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
    std::vector<std::uint64_t> ends;
    std::string text;
    for (std::uint32_t id = 0; id < words_.size(); ++id) {
        text += words_.word(id);
        ends.push_back(text.size());
    }
    const std::array<FilePart, 5> body{part(row_starts_), part(t_), part(columns_), part(std::span<const std::uint64_t>(ends)),
                                       part(std::span<const char>(text))};
    for (const FilePart& bytes : body) header.body = checksum(bytes, header.body);
    header.check = checksum_of(header);
    static constexpr std::array<std::byte, 8> ZEROS{};
    const FilePart padding = FilePart(ZEROS).first(padded(columns_.size_bytes()) - columns_.size_bytes());
    write_file(path,
               std::array<FilePart, 7>{std::as_bytes(std::span(&header, 1)), body[0], body[1], body[2], padding, body[3], body[4]});
}

std::shared_ptr<const AlignModel> AlignModel::load(const char* path) {
    const auto fail = [&](const std::string& got) {
        throw std::invalid_argument(std::string(path) + ": expected an alignment model of format FSALIGN2, got " + got +
                                    "; write it again");
    };
    const auto file = std::make_shared<const MappedFile>(path);
    const std::uint64_t size = file->bytes().size();
    FileHeader header{};
    std::memcpy(&header, file->bytes().data(), std::min<std::size_t>(size, sizeof header));
    if (size < sizeof header.magic || std::memcmp(header.magic, MAGIC, sizeof MAGIC) != 0) fail("another file");
    if (size < sizeof header) fail("a file of " + std::to_string(size) + " bytes");
    if (header.check != checksum_of(header) || !are_possible(header)) fail("an altered header");
    if (header.rows >= size || header.cells > size || header.words > size || header.letters > size || file_size(header) != size)
        fail(std::to_string(size) + " bytes, so it was cut off or added to");
    std::shared_ptr<AlignModel> model(new AlignModel);
    model->header_.options = {
        header.diagonal != 0, header.variational_bayes != 0, header.null_word != 0, header.compatible != 0, header.p0, header.alpha,
        header.max_length};
    model->header_.reverse = header.reverse != 0;
    model->header_.tension = header.tension;
    model->header_.length_ratio = header.length_ratio;
    SectionReader sections(file->bytes().subspan(sizeof header));
    model->row_starts_ = sections.take<std::uint64_t>(header.rows + 1);
    model->t_ = sections.take<double>(header.cells);
    model->columns_ = sections.take<std::uint32_t>(header.cells);
    const auto ends = sections.take<std::uint64_t>(header.words);
    const auto letters = sections.take<char>(header.letters);
    std::uint64_t found = 0;
    for (const FilePart& bytes : {part(model->row_starts_), part(model->t_), part(model->columns_), part(ends), part(letters)})
        found = checksum(bytes, found);
    if (found != header.body) fail("altered content");
    if (!are_ascending(ends, header.letters) || !model->has_valid_cells(header.words))
        fail("rows or words that do not fit together");
    const std::string_view text(letters.data(), letters.size());
    for (std::size_t id = 0; id < ends.size(); ++id) {
        const std::uint64_t start = id == 0 ? 0 : ends[id - 1];
        model->words_.add(text.substr(start, ends[id] - start));
    }
    if (model->words_.size() != header.words) fail("one word twice");
    model->memory_ = file;
    return model;
}

// Whether every row is within the cells, with ascending columns that are words if there are words, and finite probabilities.
bool AlignModel::has_valid_cells(std::uint64_t words) const {
    if (row_starts_.front() != 0 || !are_ascending(row_starts_, cells())) return false;
    if (words != 0 && row_starts_.size() - 2 > words) return false;
    for (std::size_t row = 0; row + 1 < row_starts_.size(); ++row) {
        for (std::uint64_t cell = row_starts_[row]; cell < row_starts_[row + 1]; ++cell) {
            if (words != 0 && columns_[cell] >= words) return false;
            if (cell > row_starts_[row] && columns_[cell] <= columns_[cell - 1]) return false;
            if (!(t_[cell] >= 0.0) || std::isinf(t_[cell])) return false;
        }
    }
    return true;
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

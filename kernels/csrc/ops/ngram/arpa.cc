#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <limits>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <system_error>
#include <unordered_map>
#include <utility>

#include "csrc/ops/ngram/table.h"

namespace fewstep {

namespace {

// The n-grams of one order, as in the file.
struct Section {
    std::size_t order;
    std::vector<std::uint32_t> words;  // `order` per n-gram
    std::vector<float> log_prob, backoff;

    explicit Section(std::size_t n) : order(n) {}
    std::size_t size() const { return log_prob.size(); }
    const std::uint32_t* at(std::size_t ngram) const { return words.data() + ngram * order; }
    void add(const std::uint32_t* ngram, float log_prob_, float backoff_) {
        words.insert(words.end(), ngram, ngram + order);
        log_prob.push_back(log_prob_);
        backoff.push_back(backoff_);
    }
    bool less(std::size_t a, std::size_t b) const {
        return std::lexicographical_compare(at(a), at(a) + order, at(b), at(b) + order);
    }
    bool sorted() const {
        for (std::size_t i = 1; i < size(); ++i) {
            if (less(i, i - 1)) return false;
        }
        return true;
    }
    void sort() {
        if (sorted()) return;
        std::vector<std::uint32_t> permutation(size());
        std::iota(permutation.begin(), permutation.end(), 0u);
        std::sort(permutation.begin(), permutation.end(), [&](std::uint32_t a, std::uint32_t b) { return less(a, b); });
        Section other(order);
        for (const std::uint32_t ngram : permutation) other.add(at(ngram), log_prob[ngram], backoff[ngram]);
        *this = std::move(other);
    }
};

class ArpaReader {
  public:
    ArpaReader(std::string_view text, const std::string& name) : text_(text), name_(name) {}

    NgramTable read() {
        read_counts();
        for (std::size_t n = 1; n <= counts_.size(); ++n) read_section(n);
        if (line_ != "\\end\\") reject("\\end\\ at the end of the file");
        for (std::size_t n = sections_.size(); n-- > 1;) add_contexts(sections_[n - 1], sections_[n]);
        return table();
    }

  private:
    [[noreturn]] void fail(const std::string& message) const { throw std::invalid_argument(name_ + ": " + message); }
    [[noreturn]] void reject(const std::string& expected) const {
        fail("line " + std::to_string(number_) + ": expected " + expected + ", got " +
             (more_ ? "'" + std::string(line_.substr(0, 200)) + "'" : std::string("the end")));
    }

    // Advance to the next line that is not blank; return false at the end of the text.
    bool next() {
        do {
            more_ = !text_.empty();
            if (!more_) return false;
            const std::size_t length = text_.find('\n');
            line_ = text_.substr(0, length);
            text_.remove_prefix(length == text_.npos ? text_.size() : length + 1);
            ++number_;
            while (!line_.empty() && (line_.back() == '\r' || line_.back() == ' ' || line_.back() == '\t')) line_.remove_suffix(1);
        } while (line_.empty());
        return true;
    }

    void read_counts() {
        while (next() && line_ != "\\data\\") continue;
        if (!more_) reject("\\data\\, which begins an ARPA file");
        while (next() && line_.starts_with("ngram")) {
            const std::string wanted = std::to_string(counts_.size() + 1) + "=";
            std::string entry;
            for_each_word(line_.substr(5), [&](std::string_view part) { entry += part; });
            std::uint64_t count = 0;
            const char* const end = entry.data() + entry.size();
            if (!entry.starts_with(wanted)) reject("ngram " + wanted + "COUNT");
            const auto [at, error] = std::from_chars(entry.data() + wanted.size(), end, count);
            if (at != end || error != std::errc()) reject("ngram " + wanted + "COUNT");
            counts_.push_back(count);
        }
        if (counts_.empty()) reject("ngram 1=COUNT");
        if (counts_.size() > NGRAM_MAX_ORDER)
            fail("expected an order up to " + std::to_string(NGRAM_MAX_ORDER) + ", got " + std::to_string(counts_.size()));
    }

    // Read a section and leave `line_` at the line after it.
    void read_section(std::size_t n) {
        sections_.emplace_back(n);
        std::string title = "\\";
        title += std::to_string(n) + "-grams:";
        if (line_ == title && more_) {
            while (next() && line_[0] != '\\') read_ngram(n);
        } else if (counts_[n - 1] > 0) {
            reject(title);
        }
        if (sections_.back().size() != counts_[n - 1]) {
            fail(title + " expected " + std::to_string(counts_[n - 1]) + " n-grams, as the header says, got " +
                 std::to_string(sections_.back().size()));
        }
        if (n == 1) order_unigrams();
        sections_.back().sort();
        reject_duplicates(sections_.back());
    }

    void read_ngram(std::size_t n) {
        fields_.clear();
        for_each_word(line_, [&](std::string_view field) { fields_.push_back(field); });
        if (fields_.size() != n + 1 && fields_.size() != n + 2) {
            reject("a log-probability, " + std::to_string(n) + " words and perhaps a back-off");
        }
        const float log_prob = number(fields_[0]);
        if (log_prob > 0) reject("a log-probability of at most 0");
        float backoff = fields_.size() == n + 2 ? number(fields_.back()) : 0;
        if (n == counts_.size()) backoff = 0;
        if (n == 1) return add_unigram(fields_[1], log_prob, backoff);
        std::array<std::uint32_t, NGRAM_MAX_ORDER> words{};
        for (std::size_t i = 0; i < n; ++i) {
            const auto found = texts_.find(canonical(fields_[i + 1]));
            if (found == texts_.end()) reject("words of the unigrams alone");
            words[i] = found->second;
        }
        sections_.back().add(words.data(), log_prob, backoff);
    }

    static std::string_view canonical(std::string_view word) { return word == "<UNK>" ? NGRAM_SPECIAL_WORDS[NGRAM_UNKNOWN] : word; }

    float number(std::string_view field) const {
        if (field.starts_with('+')) field.remove_prefix(1);
        double value = 0;
        const auto [end, error] = std::from_chars(field.data(), field.data() + field.size(), value);
        const auto nearest = static_cast<float>(value);
        if (error != std::errc() || end != field.data() + field.size() || !std::isfinite(nearest)) {
            reject("finite numbers (-99 stands for no probability)");
        }
        return nearest + 0.0f;  // turns -0 into 0
    }

    void add_unigram(std::string_view word, float log_prob, float backoff) {
        const auto id = static_cast<std::uint32_t>(words_.size());
        if (!texts_.emplace(canonical(word), id).second) reject("each word once");
        words_.emplace_back(canonical(word));
        sections_[0].add(&id, log_prob, backoff);
    }

    // Renumber the special words to come first.
    void order_unigrams() {
        const char* const unknown = NGRAM_SPECIAL_WORDS[NGRAM_UNKNOWN];
        if (!texts_.contains(unknown)) add_unigram(unknown, NGRAM_NO_UNKNOWN, 0);
        std::vector<std::uint32_t> order(words_.size());
        std::iota(order.begin(), order.end(), 0u);
        const auto rank = [&](std::uint32_t id) {
            const auto* special = std::find(std::begin(NGRAM_SPECIAL_WORDS), std::end(NGRAM_SPECIAL_WORDS), words_[id]);
            return special - std::begin(NGRAM_SPECIAL_WORDS);
        };
        for (const char* special : NGRAM_SPECIAL_WORDS) {
            if (!texts_.contains(special)) fail(std::string("\\1-grams: expected ") + special + " in this section, got none");
        }
        std::stable_sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) { return rank(a) < rank(b); });
        std::vector<std::string> words;
        Section section(1);
        for (std::uint32_t id = 0; id < order.size(); ++id) {
            words.push_back(std::move(words_[order[id]]));
            texts_[words.back()] = id;
            section.add(&id, sections_[0].log_prob[order[id]], sections_[0].backoff[order[id]]);
        }
        words_ = std::move(words);
        sections_[0] = std::move(section);
    }

    void reject_duplicates(const Section& section) const {
        for (std::size_t i = 1; i < section.size(); ++i) {
            if (!section.less(i - 1, i)) fail("expected each n-gram once, got '" + to_text(section, i) + "' twice");
        }
    }

    std::string to_text(const Section& section, std::size_t ngram) const {
        std::string text;
        for (std::size_t i = 0; i < section.order; ++i) text += (i ? " " : "") + words_[section.at(ngram)[i]];
        return text;
    }

    static bool has_context(const Section& longer, std::size_t ngram, const std::uint32_t* context) {
        return std::equal(context, context + longer.order - 1, longer.at(ngram));
    }

    // Add the contexts of `longer` that `section` lacks.
    static void add_contexts(Section& section, const Section& longer) {
        const std::size_t n = section.order, before = section.size();
        std::size_t i = 0;
        for (std::size_t j = 0; j < longer.size(); ++j) {
            const std::uint32_t* const context = longer.at(j);
            if (j > 0 && has_context(longer, j - 1, context)) continue;
            while (i < before && std::lexicographical_compare(section.at(i), section.at(i) + n, context, context + n)) ++i;
            if (i == before || !has_context(longer, j, section.at(i)))
                section.add(context, std::numeric_limits<float>::quiet_NaN(), 0);
        }
        section.sort();
    }

    NgramTable table() {
        NgramTable table;
        table.words = std::move(words_);
        for (std::size_t n = 0; n < sections_.size(); ++n) {
            Section& section = sections_[n];
            NgramLevel& level = table.levels.emplace_back();
            for (std::size_t i = 0; i < section.size(); ++i) level.word.push_back(section.at(i)[n]);
            if (n + 1 < sections_.size()) {
                const Section& longer = sections_[n + 1];
                std::size_t j = 0;
                for (std::size_t i = 0; i < section.size(); ++i) {
                    level.first.push_back(static_cast<std::uint32_t>(j));
                    while (j < longer.size() && has_context(longer, j, section.at(i))) ++j;
                }
                level.first.push_back(static_cast<std::uint32_t>(j));
                level.backoff = std::move(section.backoff);
            }
            level.log_prob = std::move(section.log_prob);
        }
        return table;
    }

    std::string_view text_;
    const std::string& name_;
    std::string_view line_;
    std::uint64_t number_ = 0;
    bool more_ = true;
    std::vector<std::string_view> fields_;
    std::vector<std::uint64_t> counts_;
    std::vector<Section> sections_;
    std::vector<std::string> words_;
    std::unordered_map<std::string_view, std::uint32_t> texts_;  // word ids by text
};

}  // namespace

NgramTable read_arpa(std::string_view text, const std::string& name) { return ArpaReader(text, name).read(); }

namespace {

constexpr std::size_t BUFFER = 1 << 20;  // characters written at a time

// A buffered text file.
class Writer {
  public:
    explicit Writer(const std::string& path) : path_(path), file_(std::fopen(path.c_str(), "wb")) {
        if (!file_) throw FileError(errno, path_);
    }
    void add(std::string_view text) {
        text_ += text;
        if (text_.size() >= BUFFER) flush();
    }
    void add(float value) {  // the shortest text that reads as the same float
        char digits[32];
        add(std::string_view(digits, static_cast<std::size_t>(std::to_chars(digits, digits + sizeof(digits), value).ptr - digits)));
    }
    void close() {
        flush();
        if (std::fclose(file_.release()) != 0) throw FileError(errno, path_);
    }

  private:
    struct Close {
        void operator()(std::FILE* file) const { std::fclose(file); }
    };
    void flush() {
        errno = 0;
        if (std::fwrite(text_.data(), 1, text_.size(), file_.get()) != text_.size()) throw FileError(errno ? errno : EIO, path_);
        text_.clear();
    }

    const std::string& path_;
    std::unique_ptr<std::FILE, Close> file_;
    std::string text_;
};

}  // namespace

void write_arpa(const NgramModel& model, const std::string& path) {
    Writer file(path);
    file.add("\\data\\\n");
    for (int n = 1; n <= model.order(); ++n) {
        file.add("ngram " + std::to_string(n) + "=" + std::to_string(model.counts()[n - 1]) + "\n");
    }
    for (int n = 1; n <= model.order(); ++n) {
        file.add("\n\\" + std::to_string(n) + "-grams:\n");
        model.for_each(n, [&](std::span<const std::uint32_t> words, float log_prob, float backoff) {
            file.add(log_prob);
            for (std::size_t i = 0; i < words.size(); ++i) {
                file.add(i ? " " : "\t");
                file.add(model.text(words[i]));
            }
            if (n < model.order()) {
                file.add("\t");
                file.add(backoff);
            }
            file.add("\n");
        });
    }
    file.add("\n\\end\\\n");
    file.close();
}

}  // namespace fewstep

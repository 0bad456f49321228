#include "csrc/inference/ngram/model.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <numeric>
#include <stdexcept>

#include "csrc/base/parallel.h"

namespace fewstep {

static_assert(std::endian::native == std::endian::little, "model files are little-endian");

namespace {

constexpr std::size_t BLOCK_BYTES = 1 << 16;  // text that a thread scores at a time

// Reads the sections of a file in order.
class SectionReader {
  public:
    explicit SectionReader(std::span<const std::byte> bytes) : bytes_(bytes) {}

    template <typename T>
    std::span<const T> take(std::uint64_t count) {
        if (bytes_.size() / sizeof(T) < count) return fail<T>();
        const std::span<const T> part(reinterpret_cast<const T*>(bytes_.data()), count);
        bytes_ = bytes_.subspan(std::min(bytes_.size(), (count * sizeof(T) + 7) / 8 * 8));
        return part;
    }
    bool fits() const { return fits_ && bytes_.empty(); }

  private:
    template <typename T>
    std::span<const T> fail() {
        fits_ = false;
        return {};
    }

    std::span<const std::byte> bytes_;
    bool fits_ = true;
};

// Return whether every look-up terminates and stays within the table.
bool is_valid_table(std::span<const std::uint32_t> slots, std::uint64_t end) {
    bool empty = false, inside = true;
    for (const std::uint32_t slot : slots) {
        empty |= slot == 0;
        inside &= slot < end;
    }
    return empty && inside;
}

[[noreturn]] void reject(const std::string& name, const std::string& got) {
    throw std::invalid_argument(name + ": expected an n-gram model of version " + std::to_string(NGRAM_VERSION) + ", got " + got +
                                "; build it again");
}

}  // namespace

std::uint64_t word_slot(std::string_view text, std::uint64_t slots) {
    std::uint64_t hash = 14695981039346656037u;  // FNV-1a
    for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211u;
    return ngram_slot(static_cast<std::uint32_t>(hash >> 32), static_cast<std::uint32_t>(hash), slots);
}

NgramModel NgramModel::map(const std::string& path) {
    const auto file = std::make_shared<const MappedFile>(path);
    return {file, file->bytes(), path};
}

NgramModel NgramModel::own(std::vector<std::uint64_t> bytes) {
    const auto memory = std::make_shared<const std::vector<std::uint64_t>>(std::move(bytes));
    return {memory, std::as_bytes(std::span(*memory)), "model"};
}

NgramModel::NgramModel(std::shared_ptr<const void> memory, std::span<const std::byte> bytes, const std::string& name)
    : memory_(std::move(memory)), bytes_(bytes), header_{} {
    std::memcpy(&header_, bytes.data(), std::min(sizeof(header_), bytes.size()));
    if (bytes.size() < sizeof(header_) || header_.magic != NGRAM_MAGIC) reject(name, "another kind of file");
    if (header_.version != NGRAM_VERSION) reject(name, "version " + std::to_string(header_.version));
    if (header_.order < 1 || header_.order > NGRAM_MAX_ORDER) reject(name, "order " + std::to_string(header_.order));
    if (header_.file_bytes != bytes.size()) {
        reject(name, std::to_string(bytes.size()) + " of " + std::to_string(header_.file_bytes) + " bytes");
    }
    const std::uint64_t max_entries = std::uint64_t{1} << 32;
    for (const std::uint64_t count : header_.counts) {
        if (count >= max_entries) reject(name, "an altered file");
    }
    const std::uint64_t entries = std::accumulate(counts().begin(), counts().end(), std::uint64_t{1});
    SectionReader reader(bytes.subspan(sizeof(header_)));
    nodes_ = reader.take<NgramNode>(entries - counts().back() + 1);
    entries_ = reader.take<NgramEntry>(entries);
    words_ = reader.take<std::uint32_t>(entries);
    slots_ = reader.take<std::uint32_t>(2 * (entries - 1 - header_.counts[0]) + 1);
    word_slots_ = reader.take<std::uint32_t>(2 * header_.counts[0] + 1);
    word_ends_ = reader.take<std::uint64_t>(header_.counts[0]);
    const std::span<const char> text = reader.take<char>(header_.word_bytes);
    text_ = {text.data(), text.size()};
    if (!reader.fits() || entries >= max_entries || !has_valid_ngrams() || !has_valid_words()) reject(name, "an altered file");
}

// Check that no query reads outside the file or loops forever.
bool NgramModel::has_valid_ngrams() const {
    std::uint64_t level = 1;
    for (int n = 0; n < order(); ++n) {  // n-grams of order n are the contexts of those of order n + 1
        const std::uint64_t contexts = n == 0 ? 0 : level - counts()[n - 1];
        if (nodes_[contexts].first != level) return false;
        level += counts()[n];
    }
    if (nodes_.back().first != level || entries_[0].shorter != EMPTY) return false;
    for (std::size_t i = 0; i + 1 < nodes_.size(); ++i) {
        if (nodes_[i].first > nodes_[i + 1].first || !std::isfinite(nodes_[i].backoff)) return false;
        for (std::uint32_t ngram = nodes_[i].first; ngram + 1 < nodes_[i + 1].first; ++ngram) {
            if (words_[ngram] >= words_[ngram + 1]) return false;
        }
    }
    for (std::uint32_t i = 1; i < entries_.size(); ++i) {
        const bool unigram = i <= words();
        if (words_[i] >= words() || (unigram && words_[i] != i - 1)) return false;
        if (entries_[i].shorter >= (unigram ? 1 : std::min<std::size_t>(i, nodes_.size() - 1))) return false;
        if (!std::isfinite(entries_[i].log_prob)) return false;
    }
    return is_valid_table(slots_, entries_.size());
}

bool NgramModel::has_valid_words() const {
    if (words() < NGRAM_SPECIAL || !std::is_sorted(word_ends_.begin(), word_ends_.end())) return false;
    if (word_ends_.back() != text_.size()) return false;
    for (std::uint32_t id = 0; id < NGRAM_SPECIAL; ++id) {
        if (text(id) != NGRAM_SPECIAL_WORDS[id]) return false;
    }
    return is_valid_table(word_slots_, words() + std::uint64_t{1});
}

std::string_view NgramModel::text(std::uint32_t word) const {
    const std::uint64_t begin = word ? word_ends_[word - 1] : 0;
    return text_.substr(begin, word_ends_[word] - begin);
}

std::uint32_t NgramModel::word(std::string_view wanted) const {
    std::uint64_t at = word_slot(wanted, word_slots_.size());
    for (; word_slots_[at]; at = at + 1 == word_slots_.size() ? 0 : at + 1) {
        if (text(word_slots_[at] - 1) == wanted) return word_slots_[at] - 1;
    }
    return NGRAM_UNKNOWN;
}

void NgramModel::for_each(int order, const std::function<void(std::span<const std::uint32_t>, float, float)>& at) const {
    std::vector<std::uint32_t> ngram(static_cast<std::size_t>(order));
    const auto visit = [&](const auto& self, std::uint32_t context, std::size_t depth) -> void {
        for (std::uint32_t i = nodes_[context].first; i < nodes_[context + 1].first; ++i) {
            ngram[depth] = words_[i];
            if (depth + 1 < ngram.size()) {
                self(self, i, depth + 1);
            } else {
                at(ngram, entries_[i].log_prob, i + 1 < nodes_.size() ? nodes_[i].backoff : 0.0f);
            }
        }
    };
    visit(visit, 0, 0);
}

NgramScorer::NgramScorer(std::shared_ptr<const NgramModel> model, std::vector<std::uint32_t> words)
    : model_(std::move(model)), words_(std::move(words)) {
    NgramState after = NgramModel::EMPTY;
    for (const std::uint32_t word : words_) min_log_prob_ = std::min(min_log_prob_, model_->score(NgramModel::EMPTY, word, after));
}

std::vector<NgramSentence> score_ngram_lines(const NgramModel& model, std::string_view text, bool bos, bool eos, int threads) {
    const std::vector<std::string_view> is_separator = split_at_lines(text, BLOCK_BYTES);
    std::vector<std::vector<NgramSentence>> scores(is_separator.size());
    parallel_for(static_cast<std::int64_t>(is_separator.size()), threads, [&](std::int64_t part, int) {
        for_each_line(is_separator[part], [&](std::string_view line) {
            NgramSentence& sentence = scores[part].emplace_back();
            NgramState state = bos ? model.begin() : NgramModel::EMPTY;
            const auto add = [&](std::uint32_t word) {
                const double log_prob = model.score(state, word, state);
                sentence.log_prob += log_prob;
                ++sentence.words;
                if (word != NGRAM_UNKNOWN) return;
                sentence.unknown_log_prob += log_prob;
                ++sentence.unknown;
            };
            for_each_word(line, [&](std::string_view word) { add(model.word(word)); });
            if (eos) add(NGRAM_END);
        });
    });
    std::vector<NgramSentence> all;
    for (const auto& part : scores) all.insert(all.end(), part.begin(), part.end());
    return all;
}

}  // namespace fewstep

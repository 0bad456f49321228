#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <numeric>
#include <span>
#include <stdexcept>
#include <string_view>

#include "csrc/base/parallel.h"
#include "csrc/inference/ngram/model.h"
#include "csrc/ops/ngram/table.h"

namespace fewstep {

namespace {

constexpr std::uint32_t BLOCK = 4096;  // contexts that a thread takes at a time

// The sections of a file under construction.
struct FileSections {
    std::span<NgramNode> nodes;
    std::span<NgramEntry> entries;
    std::span<std::uint32_t> words;
    std::span<std::uint32_t> slots;
    std::span<std::uint32_t> word_slots;
    std::span<std::uint64_t> word_ends;
    std::span<char> text;
};

template <typename T>
std::span<T> take(std::span<std::uint64_t>& space, std::uint64_t count) {
    const std::span<T> part(reinterpret_cast<T*>(space.data()), count);
    space = space.subspan((count * sizeof(T) + 7) / 8);
    return part;
}

std::uint64_t rounded(std::uint64_t bytes) { return (bytes + 7) / 8 * 8; }

std::uint64_t ngram_slots(const NgramHeader& header, std::uint64_t entries) { return 2 * (entries - 1 - header.counts[0]) + 1; }
std::uint64_t word_slots(const NgramHeader& header) { return 2 * header.counts[0] + 1; }

NgramHeader describe(const NgramTable& table) {
    NgramHeader header{NGRAM_MAGIC, NGRAM_VERSION, static_cast<std::uint32_t>(table.levels.size()), {}, 0, 0, 0};
    std::uint64_t entries = 1;
    for (std::size_t n = 0; n < table.levels.size(); ++n) entries += header.counts[n] = table.levels[n].size();
    for (const std::string& word : table.words) header.word_bytes += word.size();
    const std::uint64_t nodes = entries - table.levels.back().size();
    header.file_bytes = sizeof(header) + (nodes + 1) * sizeof(NgramNode) + entries * sizeof(NgramEntry) + rounded(4 * entries) +
                        rounded(4 * ngram_slots(header, entries)) + rounded(4 * word_slots(header)) + 8 * header.counts[0] +
                        rounded(header.word_bytes);
    if (entries >= std::uint64_t{1} << 32) {
        throw std::length_error("expected at most 2^32 - 2 n-grams, got " + std::to_string(entries - 1) + "; prune more");
    }
    return header;
}

FileSections lay_out(const NgramHeader& header, std::span<std::uint64_t> space) {
    space = space.subspan(sizeof(header) / 8);
    const std::uint64_t entries = std::accumulate(header.counts.begin(), header.counts.end(), std::uint64_t{1});
    FileSections sections;
    sections.nodes = take<NgramNode>(space, entries - header.counts[header.order - 1] + 1);
    sections.entries = take<NgramEntry>(space, entries);
    sections.words = take<std::uint32_t>(space, entries);
    sections.slots = take<std::uint32_t>(space, ngram_slots(header, entries));
    sections.word_slots = take<std::uint32_t>(space, word_slots(header));
    sections.word_ends = take<std::uint64_t>(space, header.counts[0]);
    sections.text = take<char>(space, header.word_bytes);
    return sections;
}

void fill_slot(std::span<std::uint32_t> slots, std::uint64_t at, std::uint32_t value) {
    while (slots[at]) at = at + 1 == slots.size() ? 0 : at + 1;
    slots[at] = value;
}

void write_words(const std::vector<std::string>& words, FileSections& sections) {
    std::uint64_t end = 0;
    for (std::size_t id = 0; id < words.size(); ++id) {
        std::copy(words[id].begin(), words[id].end(), sections.text.begin() + static_cast<std::ptrdiff_t>(end));
        sections.word_ends[id] = end += words[id].size();
    }
    for (std::uint32_t id = 0; id < words.size(); ++id)
        fill_slot(sections.word_slots, word_slot(words[id], sections.word_slots.size()), id + 1);
}

// Copy level by level, freeing each.
void write_levels(std::vector<NgramLevel>& levels, FileSections& sections) {
    std::uint32_t begin = 1;
    sections.nodes[0] = {1, 0};
    for (NgramLevel& level : levels) {
        const auto end = begin + static_cast<std::uint32_t>(level.size());
        for (std::uint32_t i = begin; i < end; ++i) {
            sections.entries[i] = {level.log_prob[i - begin], 0};
            sections.words[i] = level.word[i - begin];
            if (i + 1 < sections.nodes.size()) sections.nodes[i] = {end + level.first[i - begin], level.backoff[i - begin]};
        }
        begin = end;
        level = {};
    }
    sections.nodes.back() = {begin, 0};
}

void write_slots(FileSections& sections) {
    for (std::uint32_t context = 1; context + 1 < sections.nodes.size(); ++context) {
        for (std::uint32_t ngram = sections.nodes[context].first; ngram < sections.nodes[context + 1].first; ++ngram) {
            fill_slot(sections.slots, ngram_slot(context, sections.words[ngram], sections.slots.size()), ngram);
        }
    }
}

// Finds for each n-gram the longest proper suffix in the model, order by order.
class Linker {
  public:
    Linker(FileSections& sections, const NgramHeader& header, int threads)
        : nodes_(sections.nodes),
          entries_(sections.entries),
          words_(sections.words),
          slots_(sections.slots),
          header_(header),
          threads_(threads),
          ends_(nodes_.size()) {}

    void run() {
        std::uint32_t begin = 1;
        for (std::uint32_t n = 1; n < header_.order; ++n) {
            const auto end = begin + static_cast<std::uint32_t>(header_.counts[n - 1]);
            parallel_for((end - begin + BLOCK - 1) / BLOCK, threads_, [&](std::int64_t block, int) {
                const std::uint32_t from = begin + static_cast<std::uint32_t>(block) * BLOCK;
                for (std::uint32_t context = from; context < std::min(end, from + BLOCK); ++context) link(context, begin);
            });
            begin = end;
        }
    }

    // Return whether the model contains w2 ... wn for each n-gram w1 ... wn.
    bool closed() const { return closed_; }

  private:
    // `level` is the first n-gram of the order of `context`.
    void link(std::uint32_t context, std::uint32_t level) {
        for (std::uint32_t ngram = nodes_[context].first; ngram < nodes_[context + 1].first; ++ngram) {
            const std::uint32_t word = words_[ngram];
            double backoff = nodes_[context].backoff;
            std::uint32_t end = 0, shorter = ends_[context];
            while (shorter && !(end = find_ngram(slots_, nodes_, words_, shorter, word))) {
                backoff += nodes_[shorter].backoff;
                shorter = ends_[shorter];
            }
            if (!shorter) end = 1 + word;
            if (ngram + 1 < nodes_.size()) ends_[ngram] = end;
            if (end < level) closed_ = false;
            NgramEntry& entry = entries_[ngram];
            entry.shorter = is_state(end) ? end : entries_[end].shorter;
            if (std::isnan(entry.log_prob)) entry.log_prob = static_cast<float>(backoff + entries_[end].log_prob);
        }
    }
    bool is_state(std::uint32_t ngram) const {
        return nodes_[ngram].first != nodes_[ngram + 1].first || nodes_[ngram].backoff != 0;
    }

    std::span<const NgramNode> nodes_;
    std::span<NgramEntry> entries_;
    std::span<const std::uint32_t> words_;
    std::span<const std::uint32_t> slots_;
    const NgramHeader& header_;
    const int threads_;
    std::vector<std::uint32_t> ends_;  // by node: its longest proper suffix
    std::atomic<bool> closed_{true};
};

}  // namespace

std::vector<std::uint64_t> build_ngram_file(NgramTable table, int threads) {
    NgramHeader header = describe(table);
    std::vector<std::uint64_t> bytes(header.file_bytes / 8);
    FileSections sections = lay_out(header, bytes);
    write_words(table.words, sections);
    write_levels(table.levels, sections);
    write_slots(sections);
    Linker linker(sections, header, threads);
    linker.run();
    header.closed = linker.closed();
    std::memcpy(bytes.data(), &header, sizeof(header));
    return bytes;
}

}  // namespace fewstep

#include "csrc/ops/ngram/build.h"

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

namespace fewstep {

namespace {

constexpr std::uint32_t BLOCK = 4096;  // contexts that a thread takes at once

// The file's parts, as they are being filled.
struct Parts {
    std::span<NgramNode> nodes;
    std::span<NgramEntry> entries;
    std::span<std::uint32_t> words;
    std::span<std::uint32_t> slots;
    std::span<std::uint32_t> word_slots;
    std::span<std::uint64_t> word_ends;
    std::span<char> text;
};

template <typename T>
std::span<T> take(std::span<std::uint64_t>& room, std::uint64_t count) {
    const std::span<T> part(reinterpret_cast<T*>(room.data()), count);
    room = room.subspan((count * sizeof(T) + 7) / 8);
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

Parts lay_out(const NgramHeader& header, std::span<std::uint64_t> room) {
    room = room.subspan(sizeof(header) / 8);
    const std::uint64_t entries = std::accumulate(header.counts.begin(), header.counts.end(), std::uint64_t{1});
    Parts parts;
    parts.nodes = take<NgramNode>(room, entries - header.counts[header.order - 1] + 1);
    parts.entries = take<NgramEntry>(room, entries);
    parts.words = take<std::uint32_t>(room, entries);
    parts.slots = take<std::uint32_t>(room, ngram_slots(header, entries));
    parts.word_slots = take<std::uint32_t>(room, word_slots(header));
    parts.word_ends = take<std::uint64_t>(room, header.counts[0]);
    parts.text = take<char>(room, header.word_bytes);
    return parts;
}

void fill_slot(std::span<std::uint32_t> slots, std::uint64_t at, std::uint32_t value) {
    while (slots[at]) at = at + 1 == slots.size() ? 0 : at + 1;
    slots[at] = value;
}

void write_words(const std::vector<std::string>& words, Parts& parts) {
    std::uint64_t end = 0;
    for (std::size_t id = 0; id < words.size(); ++id) {
        std::copy(words[id].begin(), words[id].end(), parts.text.begin() + static_cast<std::ptrdiff_t>(end));
        parts.word_ends[id] = end += words[id].size();
    }
    for (std::uint32_t id = 0; id < words.size(); ++id)
        fill_slot(parts.word_slots, word_slot(words[id], parts.word_slots.size()), id + 1);
}

// Copies level by level, freeing each.
void write_levels(std::vector<NgramLevel>& levels, Parts& parts) {
    std::uint32_t begin = 1;
    parts.nodes[0] = {1, 0};
    for (NgramLevel& level : levels) {
        const auto end = begin + static_cast<std::uint32_t>(level.size());
        for (std::uint32_t i = begin; i < end; ++i) {
            parts.entries[i] = {level.log_prob[i - begin], 0};
            parts.words[i] = level.word[i - begin];
            if (i + 1 < parts.nodes.size()) parts.nodes[i] = {end + level.first[i - begin], level.backoff[i - begin]};
        }
        begin = end;
        level = {};
    }
    parts.nodes.back() = {begin, 0};
}

void write_slots(Parts& parts) {
    for (std::uint32_t context = 1; context + 1 < parts.nodes.size(); ++context) {
        for (std::uint32_t ngram = parts.nodes[context].first; ngram < parts.nodes[context + 1].first; ++ngram) {
            fill_slot(parts.slots, ngram_slot(context, parts.words[ngram], parts.slots.size()), ngram);
        }
    }
}

// Finds for each n-gram the longest proper end that the model has, going up the orders.
class Linker {
  public:
    Linker(Parts& parts, const NgramHeader& header, int threads)
        : nodes_(parts.nodes),
          entries_(parts.entries),
          words_(parts.words),
          slots_(parts.slots),
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

    // Does the model have the direct end of each of its n-grams?
    bool closed() const { return closed_; }

  private:
    // `level` is the first n-gram of the context's order.
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
    std::vector<std::uint32_t> ends_;  // of the nodes
    std::atomic<bool> closed_{true};
};

}  // namespace

std::vector<std::uint64_t> build_ngram_file(NgramTable table, int threads) {
    NgramHeader header = describe(table);
    std::vector<std::uint64_t> bytes(header.file_bytes / 8);
    Parts parts = lay_out(header, bytes);
    write_words(table.words, parts);
    write_levels(table.levels, parts);
    write_slots(parts);
    Linker linker(parts, header, threads);
    linker.run();
    header.closed = linker.closed();
    std::memcpy(bytes.data(), &header, sizeof(header));
    return bytes;
}

}  // namespace fewstep

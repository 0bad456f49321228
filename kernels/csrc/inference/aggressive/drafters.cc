#include "csrc/inference/aggressive/drafters.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <utility>

namespace fewstep {

namespace {

std::span<const NarrowLayer> layers(const Drafter& drafter, bool bytes) {
    return bytes ? drafter.layer_bytes : drafter.network.narrow_decoder;
}

}  // namespace

NetworkDrafts::NetworkDrafts(const Drafter& drafter, const Sources& sources, Memory memory, const std::vector<std::int64_t>& limits,
                             bool bytes, Team& team)
    : drafter_(drafter),
      decoding_(drafter.network, std::move(memory), limits, drafter.sight, drafter.codes_in_layers, layers(drafter, bytes), team),
      keeps_(drafter.sight == Sight::PREFIX || drafter.network.decoder.size() == 1), done_(limits.size()),
      copying_({1, drafter.network.shape.width}) {
    if (drafter.mask >= 0) return;
    const Transformer& model = drafter.network;
    const std::size_t width = model.shape.width;
    std::size_t whole = 0;
    for (const std::int64_t length : sources.lengths) whole += (room_for(static_cast<std::size_t>(length)) + static_cast<std::size_t>(length)) * width;
    floats_.reserve(whole);
    const auto& table = model.source_words.empty() ? model.target_words : model.source_words;
    const float scale = std::sqrt(static_cast<float>(width));
    float* free = floats_.data();
    std::vector<float> rows;
    for (std::size_t sentence = 0; sentence < sources.rows.size(); ++sentence) {
        const auto length = static_cast<std::size_t>(sources.lengths[sentence]);
        rows.resize(length * 2 * width);
        for (std::size_t place = 0; place < length; ++place) {
            const auto word = static_cast<std::size_t>(sources.ids[sources.rows[sentence] * sources.stride + place]);
            float *key = rows.data() + place * 2 * width, *value = key + width;
            for (std::size_t unit = 0; unit < width; ++unit) {
                value[unit] = table[word * width + unit] * scale;
                key[unit] = value[unit] + model.source_positions[place * width + unit];
            }
        }
        const std::size_t room = room_for(length);
        lay_out(rows.data(), 2 * width, 0, length, length, width, free, free + room * width);
        words_.push_back({length, room, free, free + room * width});
        free += (room + length) * width;
    }
}

void NetworkDrafts::copy_source(const Order& order, std::size_t slot, float* x) {
    const std::size_t width = drafter_.network.shape.width;
    copying_.attend(drafter_.copy_queries.data() + slot * width, width, 1, words_[order.sentence], x);
    const float* code = drafter_.network.slot_codes.data() + slot * width;
    for (std::size_t unit = 0; unit < width; ++unit) x[unit] += code[unit];
}

const float* NetworkDrafts::states(std::span<const Order> orders) {
    blocks_.clear(), places_.clear();
    std::size_t rows = 0;
    for (const Order& order : orders) {
        const auto prefix = order.written->size(), first = static_cast<std::size_t>(keeps_ ? done_[order.sentence] : 0);
        const auto width = static_cast<std::size_t>(order.width);
        blocks_.push_back({order.sentence, first, prefix + width - first, width});
        rows += blocks_.back().count;
    }
    const std::size_t size = drafter_.network.shape.width;
    float* x = decoding_.inputs(rows);
    for (std::size_t place = 0; place < orders.size(); ++place) {
        const Order& order = orders[place];
        const std::size_t prefix = order.written->size(), end = blocks_[place].first + blocks_[place].count;
        for (std::size_t slot = blocks_[place].first; slot < end; ++slot, x += size) {
            if (slot < prefix) decoding_.embed((*order.written)[slot], slot, x);
            else if (drafter_.mask >= 0) decoding_.embed(drafter_.mask, slot, x);
            else copy_source(order, slot, x);
            if (slot >= prefix && prefix > 0 && drafter_.last_token) decoding_.add_word(order.written->back(), x);
            if (slot >= prefix) places_.push_back(static_cast<std::int64_t>(slot));
        }
        done_[order.sentence] = static_cast<std::int64_t>(prefix);
    }
    return decoding_.states(blocks_);
}

FeatureDrafts::FeatureDrafts(const Drafter& drafter, Memory memory, const std::vector<std::int64_t>& limits, bool bytes, Team& team)
    : drafter_(drafter), bytes_(bytes), team_(team),
      decoding_(drafter.network, std::move(memory), limits, Sight::CAUSAL, false, layers(drafter, bytes), team),
      width_(drafter.network.shape.width), done_(limits.size()) {
    for (const std::int64_t limit : limits) {
        starts_.push_back(slots_);
        slots_ += static_cast<std::size_t>(limit);
    }
    features_.reserve(slots_ * width_);
}

void FeatureDrafts::learn(std::size_t sentence, std::size_t first, std::size_t count, const float* states) {
    std::copy_n(states, count * width_, feature(sentence, first));
    done_[sentence] = std::min(done_[sentence], first + 1);  // slots behind `first` carried other features
}

const float* FeatureDrafts::states(std::span<const Next> ahead) {
    blocks_.clear();
    std::size_t rows = 0;
    for (const Next& next : ahead) {
        const std::size_t first = done_[next.sentence];
        blocks_.push_back({next.sentence, first, next.slot() + 1 - first, 1});
        rows += blocks_.back().count;
    }
    carried_.reserve(rows * width_);
    float *x = decoding_.inputs(rows), *into = x, *carried = carried_.data();
    for (std::size_t place = 0; place < ahead.size(); ++place) {
        const auto& [sentence, written, drafted] = ahead[place];
        for (std::size_t slot = blocks_[place].first; slot <= ahead[place].slot(); ++slot, into += width_, carried += width_) {
            const std::size_t before = slot - 1;
            decoding_.embed(slot == 0 ? -1 : before < written->size() ? (*written)[before] : (*drafted)[before - written->size()], slot, into);
            if (slot == 0) std::fill_n(carried, width_, 0.0F);
            else std::copy_n(feature(sentence, before), width_, carried);
        }
    }
    if (bytes_) drafter_.feature_bytes.multiply(carried_.data(), width_, rows, x, width_, Then::ADD, values_);
    else drafter_.features.multiply(carried_.data(), width_, rows, x, width_, Then::ADD, team_);
    const float* found = decoding_.states(blocks_);
    for (std::size_t place = 0; place < ahead.size(); ++place) {
        std::copy_n(found + place * width_, width_, feature(ahead[place].sentence, ahead[place].slot()));
        done_[ahead[place].sentence] = ahead[place].slot() + 1;
    }
    return found;
}

namespace {

// The token at a place of a text that begins with bos.
struct Begun {
    const std::vector<std::int64_t>& text;
    std::int64_t bos;

    std::int64_t size() const { return static_cast<std::int64_t>(text.size()) + 1; }
    std::int64_t operator[](std::int64_t place) const { return place == 0 ? bos : text[static_cast<std::size_t>(place) - 1]; }
};

bool ends_alike(const Begun& one, std::int64_t place, const Begun& other, std::int64_t end, std::int64_t size) {
    if (place + 1 < size) return false;
    for (std::int64_t back = 0; back < size; ++back)
        if (one[place - back] != other[end - back]) return false;
    return true;
}

void copy_behind(const Begun& text, std::int64_t place, std::int64_t width, std::vector<std::int64_t>& draft) {
    for (std::int64_t next = place + 1; next < std::min(text.size(), place + 1 + width); ++next) draft.push_back(text[next]);
}

}  // namespace

void look_up(const std::vector<std::int64_t>& hint, const std::vector<std::int64_t>& written, std::int64_t bos, std::int64_t longest,
             std::int64_t width, std::vector<std::int64_t>& draft) {
    draft.clear();
    const Begun before{written, bos}, other{hint, bos};
    const std::int64_t end = before.size() - 1;
    for (std::int64_t size = std::min(longest, before.size()); size >= 1; --size) {
        std::int64_t nearest = -1;
        for (std::int64_t place = 0; place + 1 < other.size(); ++place)
            if (ends_alike(other, place, before, end, size) && (nearest < 0 || std::abs(place - end) < std::abs(nearest - end))) nearest = place;
        if (nearest >= 0) return copy_behind(other, nearest, width, draft);
        for (std::int64_t place = end - 1; place >= 0; --place)
            if (ends_alike(before, place, before, end, size)) return copy_behind(before, place, width, draft);
    }
}

}  // namespace fewstep

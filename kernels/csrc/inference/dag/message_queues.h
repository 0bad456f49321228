// Queues of probability that is passed to later vertices.
#pragma once

#include <array>
#include <cstdint>
#include <utility>
#include <vector>

namespace fewstep {

// The probability (csrc/inference/dag/scaled_float.h) of a prefix on its way to a vertex.
struct DagMessage {
    double value;
    std::int32_t exponent, node;
};

// A queue of messages per vertex, in first-in first-out order. Chunks are recycled, so memory is bounded by the maximum number of
// pending messages.
class MessageQueues {
  public:
    void reset(std::int64_t vertices) {
        chunks_.clear();
        free_ = NONE;
        queues_.assign(static_cast<std::size_t>(vertices), {});
    }

    void push(std::int32_t vertex, const DagMessage& message) {
        Queue& queue = queues_[vertex];
        if (queue.last == NONE || chunks_[queue.last].count == CHUNK_SIZE) append_chunk(queue);
        Chunk& chunk = chunks_[queue.last];
        chunk.messages[chunk.count++] = message;
    }

    bool empty(std::int32_t vertex) const { return queues_[vertex].first == NONE; }

    template <typename Read>
    void for_each(std::int32_t vertex, const Read& read) {
        for (std::int32_t at = queues_[vertex].first; at != NONE; at = chunks_[at].next) {
            Chunk& chunk = chunks_[at];
            for (std::int32_t i = 0; i < chunk.count; ++i) read(chunk.messages[i]);
        }
    }

    // Empty a queue that is not empty.
    void clear(std::int32_t vertex) {
        Queue& queue = queues_[vertex];
        chunks_[queue.last].next = std::exchange(free_, queue.first);
        queue = {};
    }

    // At most this many messages are held.
    std::size_t messages() const { return chunks_.size() * CHUNK_SIZE; }
    std::size_t bytes() const { return chunks_.capacity() * sizeof(Chunk); }

  private:
    static constexpr std::int32_t NONE = -1, CHUNK_SIZE = 64;

    struct Chunk {
        std::array<DagMessage, CHUNK_SIZE> messages;
        std::int32_t count, next;
    };
    struct Queue {
        std::int32_t first = NONE, last = NONE;  // indices of chunks
    };

    void append_chunk(Queue& queue) {
        const std::int32_t chunk = free_ == NONE ? static_cast<std::int32_t>(chunks_.size()) : free_;
        if (free_ == NONE) {
            chunks_.emplace_back();
        } else {
            free_ = chunks_[chunk].next;
        }
        chunks_[chunk].count = 0;
        chunks_[chunk].next = NONE;
        (queue.last == NONE ? queue.first : chunks_[queue.last].next) = chunk;
        queue.last = chunk;
    }

    std::vector<Queue> queues_;
    std::vector<Chunk> chunks_;
    std::int32_t free_ = NONE;  // head of the list of free chunks
};

}  // namespace fewstep

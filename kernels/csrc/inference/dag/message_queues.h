// Probability on its way to later vertices.
#pragma once

#include <array>
#include <cstdint>
#include <utility>
#include <vector>

namespace fewstep {

// So much (csrc/dag/mass.h) reaches a vertex with the prefix of a node.
struct DagMessage {
    double value;
    std::int32_t exponent, node;
};

// Messages by vertex, in the order in which they were sent. Their memory is that of the most messages under way at a time.
class DagInboxes {
  public:
    void start(std::int64_t vertices) {
        sheets_.clear();
        blank_ = NONE;
        inboxes_.assign(static_cast<std::size_t>(vertices), {});
    }

    void send(std::int32_t vertex, const DagMessage& message) {
        Inbox& inbox = inboxes_[vertex];
        if (inbox.last == NONE || sheets_[inbox.last].count == SHEET) lengthen(inbox);
        Sheet& sheet = sheets_[inbox.last];
        sheet.messages[sheet.count++] = message;
    }

    bool empty(std::int32_t vertex) const { return inboxes_[vertex].first == NONE; }

    template <typename Read>
    void for_each(std::int32_t vertex, const Read& read) {
        for (std::int32_t at = inboxes_[vertex].first; at != NONE; at = sheets_[at].next) {
            Sheet& sheet = sheets_[at];
            for (std::int32_t i = 0; i < sheet.count; ++i) read(sheet.messages[i]);
        }
    }

    // Of one that is not empty.
    void clear(std::int32_t vertex) {
        Inbox& inbox = inboxes_[vertex];
        sheets_[inbox.last].next = std::exchange(blank_, inbox.first);
        inbox = {};
    }

    std::size_t bytes() const { return sheets_.capacity() * sizeof(Sheet); }

  private:
    static constexpr std::int32_t NONE = -1, SHEET = 64;

    struct Sheet {
        std::array<DagMessage, SHEET> messages;
        std::int32_t count, next;
    };
    struct Inbox {
        std::int32_t first = NONE, last = NONE;  // sheets
    };

    void lengthen(Inbox& inbox) {
        const std::int32_t sheet = blank_ == NONE ? static_cast<std::int32_t>(sheets_.size()) : blank_;
        if (blank_ == NONE) {
            sheets_.emplace_back();
        } else {
            blank_ = sheets_[sheet].next;
        }
        sheets_[sheet].count = 0;
        sheets_[sheet].next = NONE;
        (inbox.last == NONE ? inbox.first : sheets_[inbox.last].next) = sheet;
        inbox.last = sheet;
    }

    std::vector<Inbox> inboxes_;
    std::vector<Sheet> sheets_;
    std::int32_t blank_ = NONE;  // the first of the sheets that are free
};

}  // namespace fewstep

#include "csrc/ops/align/symmetrise.h"

#include <algorithm>
#include <iterator>
#include <stdexcept>
#include <string>
#include <unordered_set>

namespace fewstep {

namespace {

std::uint64_t key(std::uint32_t source, std::uint32_t target) { return std::uint64_t{source} << 32 | target; }

// The links so far, and the linked words of both sides.
class Grid {
  public:
    explicit Grid(const std::vector<Link>& all) {
        std::uint32_t sources = 0, targets = 0;
        for (const auto& [source, target] : all) {
            sources = std::max(sources, source + 1);
            targets = std::max(targets, target + 1);
        }
        source_linked_.resize(sources);
        target_linked_.resize(targets);
    }

    void add(const Link& link) {
        links_.insert(key(link.first, link.second));
        source_linked_[link.first] = target_linked_[link.second] = true;
    }
    bool has(const Link& link) const { return links_.count(key(link.first, link.second)) != 0; }
    bool both_unlinked(const Link& link) const { return !source_linked_[link.first] && !target_linked_[link.second]; }
    bool either_unlinked(const Link& link) const { return !source_linked_[link.first] || !target_linked_[link.second]; }
    bool has_neighbour(const Link& link) const {
        for (int ds = -1; ds <= 1; ++ds)
            for (int dt = -1; dt <= 1; ++dt)  // positions below 0 wrap to positions without words
                if ((ds || dt) &&
                    links_.count(key(link.first + static_cast<std::uint32_t>(ds), link.second + static_cast<std::uint32_t>(dt))))
                    return true;
        return false;
    }

  private:
    std::unordered_set<std::uint64_t> links_;
    std::vector<bool> source_linked_, target_linked_;
};

void grow(Grid& grid, std::vector<Link> candidates) {
    for (bool added = true; added;) {
        const std::size_t before = candidates.size();
        std::erase_if(candidates, [&](const Link& link) {
            const bool fits = grid.either_unlinked(link) && grid.has_neighbour(link);
            if (fits) grid.add(link);
            return fits;
        });
        added = candidates.size() < before;
    }
}

}  // namespace

std::vector<Link> symmetrise(std::vector<Link> forward, std::vector<Link> reverse, Symmetrisation method) {
    for (auto* links : {&forward, &reverse}) {
        for (const auto& [source, target] : *links)
            if (std::max(source, target) >= MAX_POSITION)
                throw std::invalid_argument("symmetrize: expected positions below " + std::to_string(MAX_POSITION) + ", got " +
                                            std::to_string(source) + "-" + std::to_string(target));
        std::sort(links->begin(), links->end());
        links->erase(std::unique(links->begin(), links->end()), links->end());
    }
    std::vector<Link> both, either;
    std::set_intersection(forward.begin(), forward.end(), reverse.begin(), reverse.end(), std::back_inserter(both));
    if (method == Symmetrisation::INTERSECT) return both;
    std::set_union(forward.begin(), forward.end(), reverse.begin(), reverse.end(), std::back_inserter(either));
    if (method == Symmetrisation::UNION) return either;
    Grid grid(either);
    for (const Link& link : both) grid.add(link);
    std::vector<Link> candidates;
    std::set_difference(either.begin(), either.end(), both.begin(), both.end(), std::back_inserter(candidates));
    grow(grid, std::move(candidates));
    if (method != Symmetrisation::GROW_DIAG)
        for (const auto* links : {&forward, &reverse})
            for (const Link& link : *links)
                if (method == Symmetrisation::GROW_DIAG_FINAL ? grid.either_unlinked(link) : grid.both_unlinked(link))
                    grid.add(link);
    std::erase_if(either, [&](const Link& link) { return !grid.has(link); });
    return either;
}

}  // namespace fewstep

#pragma once

#include "common/plan/element_boundaries.h"
#include "common/plan/plan.h"
#include "common/plan/slicing.h"
#include "common/plan/tensor_table.h"
#include "planner/network/demands.h"
#include "planner/reshard/host_routes.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace crossmesh {

// The parts of classes that the pieces of their groups bring. Arguments must outlive it.
class ClassPieces {
 public:
  ClassPieces(const TensorTable& tensors, const Slicing& slicing, const HostGroups& groups,
              const HostRoutes& routes)
      : tensors_(tensors),
        slicing_(slicing),
        groups_(groups),
        routes_(routes),
        group_offset_(groups.demands.demands.size()),
        next_piece_(groups.demands.demands.size()) {}

  // Calls `visit` with each part, as a relay without a root, and its hops between places. Classes
  // must come in order: the bytes of a group are those of its classes one after the other.
  template <typename Visit>
  void ForEach(ClassIndex c, Visit visit) {
    const int32_t group = groups_.group_of_class[c];
    if (group == HostGroups::kNone) return;
    const int64_t bytes = slicing_.classes()[c].bytes;
    const int64_t offset = std::exchange(group_offset_[group], group_offset_[group] + bytes);
    const std::span<const Piece> pieces = routes_.PiecesOf(group);
    if (pieces.empty()) {
      const HostHop hop = OnlyHopOf(group);
      const DueTime due = DueInPiece(kAllTheTime, offset, offset + bytes, DemandOf(group).bytes);
      return visit(Relay{.slice_class = c, .end = bytes, .due = due}, std::span(&hop, 1));
    }
    int64_t& next = next_piece_[group];
    for (int64_t begin = 0; begin < bytes;) {
      const Piece& piece = pieces[next];
      const DueTime piece_due = DueOf(piece);
      const int64_t piece_begin = next == 0 ? 0 : pieces[next - 1].end;
      int64_t end = bytes;
      if (piece.end - offset < bytes) end = RoundToElement(c, piece.end - offset);
      // A piece that ends with this class, or within it, has nothing for the next one.
      if (piece.end - offset <= bytes) ++next;
      if (begin < end) {
        // Rounding may have moved them beyond the piece.
        const int64_t first = std::max(offset + begin, piece_begin) - piece_begin;
        const int64_t last = std::min(offset + end, piece.end) - piece_begin;
        const DueTime due = DueInPiece(piece_due, first, last, piece.end - piece_begin);
        visit(Relay{.slice_class = c, .begin = begin, .end = end, .due = due},
              routes_.HopsOf(piece));
      }
      begin = std::max(begin, end);
    }
  }

 private:
  static constexpr DueTime kAllTheTime = {.begin = 0, .end = DueTime::kParts};

  // When bytes from `begin` to `end` of a piece of `bytes` are due.
  static DueTime DueInPiece(const DueTime& due, int64_t begin, int64_t end, int64_t bytes) {
    const double parts = static_cast<double>(due.end - due.begin) / static_cast<double>(bytes);
    return {.begin = due.begin + static_cast<int32_t>(static_cast<double>(begin) * parts),
            .end = due.begin + static_cast<int32_t>(static_cast<double>(end) * parts)};
  }

  DueTime DueOf(const Piece& piece) const {
    return routes_.due.empty() ? kAllTheTime : routes_.due[&piece - routes_.pieces.data()];
  }

  const Demand& DemandOf(int32_t group) const { return groups_.demands.demands[group]; }

  HostHop OnlyHopOf(int32_t group) const {
    const Demands& demands = groups_.demands;
    const HostRank holder = demands.holders(DemandOf(group))[0];
    return {.root = holder, .from = holder, .to = demands.receivers(DemandOf(group))[0]};
  }

  int64_t RoundToElement(ClassIndex c, int64_t offset) {
    if (!boundaries_.has_value()) boundaries_.emplace(tensors_, slicing_);
    return boundaries_->AtOrBefore(c, offset);
  }

  const TensorTable& tensors_;
  const Slicing& slicing_;
  const HostGroups& groups_;
  const HostRoutes& routes_;
  std::optional<ElementBoundaries> boundaries_;  // most requests cut no class
  std::vector<int64_t> group_offset_;            // bytes of the classes so far, by group
  std::vector<int64_t> next_piece_;              // of the group, where its next class begins
};

}  // namespace crossmesh

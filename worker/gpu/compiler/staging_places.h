#pragma once

#include "worker/gpu/compiler/step_use.h"

#include <cstdint>
#include <map>
#include <optional>
#include <utility>

namespace crossmesh {

// Places in a device's staging, handed out step by step before the execution. A place is free again
// after its last step, but rests for `steps_ahead` more, so that so many steps may be under way
// without waiting for each other's places. Where nothing else is left, those that have rested
// longest are taken before their time. Of free places the lowest that fits is taken, so that no
// more of the staging is touched than need be, which keeps it in the GPU's cache.
// Thread-compatible.
class StagingPlaces {
 public:
  struct Place {
    int64_t offset = 0;
    StepUse before;  // of its bytes, by their last tenant
  };

  StagingPlaces(int64_t bytes, int32_t steps_ahead);

  // Goes on to a step; ascending.
  void BeginStep(int32_t step);
  // A place in the present step, to be used until `last`, which is not before it. Nothing when no
  // place of that size is free, the resting ones included. Cost: linear in free pieces.
  std::optional<Place> Take(int64_t bytes, const StepUse& last);
  // Of the places that are not free, or are resting.
  int64_t taken_bytes() const { return taken_bytes_; }

 private:
  // Bytes in one piece that had the same last user.
  struct Piece {
    int64_t bytes = 0;
    StepUse last;
  };
  using Taken = std::multimap<int32_t, std::pair<const int64_t, Piece>>;

  std::optional<Place> TakeFree(int64_t bytes);
  Place Carve(std::map<int64_t, Piece>::iterator first, int64_t bytes);
  void Free(Taken::iterator taken);

  const int32_t steps_ahead_;
  int32_t step_ = 0;
  int64_t taken_bytes_ = 0;
  std::map<int64_t, Piece> free_;  // by offset
  Taken taken_;                    // by last step; the pieces by offset
};

}  // namespace crossmesh

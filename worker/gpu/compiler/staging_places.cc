#include "worker/gpu/compiler/staging_places.h"

#include <algorithm>
#include <iterator>

namespace crossmesh {

StagingPlaces::StagingPlaces(int64_t bytes, int32_t steps_ahead) : steps_ahead_(steps_ahead) {
  if (bytes > 0) free_.emplace(0, Piece{.bytes = bytes});
}

void StagingPlaces::BeginStep(int32_t step) {
  step_ = step;
  while (!taken_.empty() && int64_t{taken_.begin()->first} + steps_ahead_ < step) {
    Free(taken_.begin());
  }
}

std::optional<StagingPlaces::Place> StagingPlaces::Take(int64_t bytes, const StepUse& last) {
  std::optional<Place> place = TakeFree(bytes);
  // By last step, so those that have rested longest come first; what is in use is left alone.
  while (!place.has_value() && !taken_.empty() && taken_.begin()->first < step_) {
    Free(taken_.begin());
    place = TakeFree(bytes);
  }
  if (place.has_value()) {
    taken_bytes_ += bytes;
    taken_.emplace(last.last(), std::pair(place->offset, Piece{.bytes = bytes, .last = last}));
  }
  return place;
}

// Of pieces that follow each other without a gap, the first ones that are large enough together.
std::optional<StagingPlaces::Place> StagingPlaces::TakeFree(int64_t bytes) {
  auto first = free_.begin();
  int64_t end = 0;
  for (auto piece = free_.begin(); piece != free_.end(); ++piece) {
    if (piece->first != end) first = piece;
    end = piece->first + piece->second.bytes;
    if (end - first->first >= bytes) return Carve(first, bytes);
  }
  return std::nullopt;
}

StagingPlaces::Place StagingPlaces::Carve(std::map<int64_t, Piece>::iterator first, int64_t bytes) {
  Place place{.offset = first->first};
  const int64_t end = place.offset + bytes;
  for (int64_t offset = place.offset; offset < end;) {
    const Piece piece = first->second;
    const int64_t piece_end = offset + piece.bytes;
    place.before.Join(piece.last);
    first = free_.erase(first);
    // What is left of a piece keeps its last user: a later tenant has to wait for that.
    if (piece_end > end) free_.emplace(end, Piece{.bytes = piece_end - end, .last = piece.last});
    offset = piece_end;
  }
  return place;
}

// Pieces that touch are not joined, since each has a last user of its own; TakeFree takes several.
void StagingPlaces::Free(Taken::iterator taken) {
  taken_bytes_ -= taken->second.second.bytes;
  free_.insert(taken->second);
  taken_.erase(taken);
}

}  // namespace crossmesh

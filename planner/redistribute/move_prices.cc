#include "planner/redistribute/move_prices.h"

#include "planner/redistribute/ring_prices.h"

#include <algorithm>
#include <array>
#include <cstddef>

namespace crossmesh {

MovePrices::MovePrices(const SearchSpace& space, const StepPrices& prices)
    : space_(space), prices_(prices) {
  for (int dimension = 0; dimension < space.types().shape().rank(); ++dimension) {
    is_even_ = is_even_ && !space.is_fixed(dimension);
  }
}

double MovePrices::Seconds(const PackedType& before, const Move& move, int64_t local_bytes,
                           bool only_messages) const {
  std::array<int32_t, kSearchAtomsMax> changed;
  size_t count = 0;
  for (int32_t atom = 0; atom < space_.atoms(); ++atom) {
    if (before[atom] != move.after[atom]) changed[count++] = atom;
  }
  const std::span<const int32_t> atoms = std::span(changed).first(count);
  const double seconds = prices_.Seconds(move.kind, atoms, local_bytes);
  if (!prices_.rings().has_value() || only_messages) return seconds;
  const double ring = prices_.rings()->Seconds(move.kind, atoms, local_bytes);
  if (ring > seconds) return seconds;
  const PackedType& pieces = move.kind == StepKind::kAllGather ? before : move.after;
  return move.kind == StepKind::kAllReduce || LieInOrder(pieces, atoms) ? ring : seconds;
}

// What does not divide has no pieces of one size.
bool MovePrices::LieInOrder(const PackedType& pieces, std::span<const int32_t> atoms) const {
  std::array<PieceCut, kSearchAtomsMax> cuts;
  size_t count = 0;
  for (int32_t atom = 0; atom < space_.atoms(); ++atom) {
    if (pieces[atom] < kFirstDigit) continue;
    const Digit& digit = space_.digits()[pieces[atom] - kFirstDigit];
    cuts[count++] = {.dimension = digit.dimension,
                     .stride = digit.stride,
                     .size = digit.size,
                     .is_piece = std::ranges::count(atoms, atom) > 0};
  }
  return is_even_ && crossmesh::LieInOrder(space_.types().shape(), std::span(cuts).first(count));
}

}  // namespace crossmesh

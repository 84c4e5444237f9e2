#include "planner/redistribute/moves.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <vector>

namespace crossmesh {
namespace {

// How many parts dimensions are cut into, beside how many the destination wants.
struct PartCounts {
  explicit PartCounts(const MoveState& state)
      : now(state.space.types().shape().rank(), 1), wanted(now), low(now) {
    for (size_t dimension = 0; dimension < now.size(); ++dimension) {
      low[dimension] = state.space.types().shape()[static_cast<int>(dimension)];
    }
    for (int atom = 0; atom < state.space.atoms(); ++atom) {
      if (state.IsCut(atom)) {
        const Digit& digit = state.space.digits()[state.DigitOf(atom)];
        now[digit.dimension] *= digit.size;
        low[digit.dimension] = std::min(low[digit.dimension], digit.stride);
      }
      if (state.WantsCut(atom)) {
        wanted[state.space.digits()[state.GoalDigit(atom)].dimension] *= state.space.size(atom);
      }
    }
  }

  // The product of what a dimension is cut too little, and too much.
  int64_t missing(size_t dimension) const {
    return wanted[dimension] / std::gcd(wanted[dimension], now[dimension]);
  }
  int64_t spare(size_t dimension) const {
    return now[dimension] / std::gcd(wanted[dimension], now[dimension]);
  }

  std::vector<int64_t> now;
  std::vector<int64_t> wanted;
  std::vector<int64_t> low;  // the finest stride that is cut
};

// Cuts right below what is cut, in a dimension that is cut too little, whatever the atom wants.
bool Fill(const MoveState& state, int atom, PartCounts& counts, Move& move) {
  const int64_t size = state.space.size(atom);
  for (size_t dimension = 0; dimension < counts.now.size(); ++dimension) {
    if (counts.missing(dimension) % size != 0 || counts.low[dimension] % size != 0) continue;
    const std::optional<int> digit =
        state.space.Find({static_cast<int>(dimension), counts.low[dimension] / size, size});
    if (!digit.has_value() || !state.IsFree(*digit)) continue;
    move.after[atom] = static_cast<uint8_t>(kFirstDigit + *digit);
    counts.now[dimension] *= size;
    counts.low[dimension] /= size;
    return true;
  }
  return false;
}

void AppendFillingSlice(const MoveState& state, std::vector<Move>& moves) {
  Move move{StepKind::kSlice, state.type};
  PartCounts counts(state);
  for (int atom = 0; atom < state.space.atoms(); ++atom) {
    if (state.type[atom] == kReplicatedCode) Fill(state, atom, counts, move);
  }
  if (move.after != state.type) moves.push_back(move);
}

// `size`: of the atoms that are moved; 0: of any.
void AppendFillingExchange(const MoveState& state, int64_t size, std::vector<Move>& moves) {
  Move move{StepKind::kAllToAll, state.type};
  PartCounts counts(state);
  std::vector<int> cut;
  for (int atom = 0; atom < state.space.atoms(); ++atom) {
    if (state.IsCut(atom) && (size == 0 || state.space.size(atom) == size)) cut.push_back(atom);
  }
  // What cuts finest leaves blocks without holes.
  std::ranges::sort(cut, {},
                    [&](int atom) { return state.space.digits()[state.DigitOf(atom)].stride; });
  for (const int atom : cut) {
    const Digit& digit = state.space.digits()[state.DigitOf(atom)];
    if (counts.spare(digit.dimension) % digit.size != 0) continue;
    if (Fill(state, atom, counts, move)) counts.now[digit.dimension] /= digit.size;
  }
  if (move.after != state.type) moves.push_back(move);
}

}  // namespace

void AppendFillings(const MoveState& state, std::vector<Move>& moves) {
  AppendFillingSlice(state, moves);
  AppendFillingExchange(state, 0, moves);
  if (state.space.sizes().size() == 1) return;
  for (const int64_t size : state.space.sizes()) AppendFillingExchange(state, size, moves);
}

}  // namespace crossmesh

#pragma once

#include "planner/redistribute/search_space.h"
#include "planner/redistribute/step.h"

#include <array>
#include <cstdint>
#include <vector>

namespace crossmesh {

// A step from one packed type to another.
struct Move {
  StepKind kind = StepKind::kSlice;
  PackedType after{};
  friend bool operator==(const Move&, const Move&) = default;
};

// What matters of a packed type when steps from it are looked for.
struct MoveState {
  MoveState(const SearchSpace& search_space, const PackedType& packed);

  bool IsFree(int digit) const { return !blocked[digit]; }
  // The digit at which an atom cuts; -1: none.
  int DigitOf(int atom) const { return type[atom] - kFirstDigit; }
  bool IsCut(int atom) const { return type[atom] >= kFirstDigit; }
  // The code that the destination wants of an atom.
  uint8_t Goal(int atom) const { return space.destination()[atom]; }
  bool WantsCut(int atom) const { return Goal(atom) >= kFirstDigit; }
  int GoalDigit(int atom) const { return Goal(atom) - kFirstDigit; }
  bool IsPlaced(int atom) const { return type[atom] == Goal(atom); }

  const SearchSpace& space;
  const PackedType& type;
  DigitSet used;        // digits that are cut
  DigitSet blocked;     // digits that cannot be cut any more
  DigitSet unmet;       // those that the destination wants of other atoms than cut them, if any do
  DigitSet in_the_way;  // those that conflict with an unmet one
};

// For each atom the codes that it may be given.
using AtomOptions = std::array<std::vector<uint8_t>, kSearchAtomsMax>;

// Appends a move of that kind for every way to give atoms one of their options or leave them as
// they are, unless all stay or two new digits conflict.
void AppendChoices(const MoveState& state, StepKind kind, const AtomOptions& options,
                   std::vector<Move>& moves);

// Appends the steps that are worth a look, each of which places an atom where the destination wants
// it, or frees the way for one:
//  - every replicated atom is cut where it is wanted, at once; when none can, one for which the way
//    is blocked is cut elsewhere;
//  - atoms are moved where they are wanted, and others out of the way, in one all-to-all;
//  - whatever atoms there are cut dimensions into as many parts as are wanted (AppendFillings);
//  - a permute brings as many atoms as it can to where they are wanted (AppendPermutes);
//  - atoms that are wanted no more are gathered, all at once, or those in the way;
//  - partial atoms are reduced, all at once or one by one.
// Cost: the atoms times the digits, and the moves.
void AppendMoves(const MoveState& state, std::vector<Move>& moves);

// Appends a slice and an all-to-all by which dimensions are cut into as many parts as the
// destination wants, by any atoms, so that a permute can do the rest.
void AppendFillings(const MoveState& state, std::vector<Move>& moves);

// Appends permutes: of the atoms that cut a dimension, and of replicated ones of their sizes, as
// many as can go where they are wanted do. What fills the rest differs from one to the next.
void AppendPermutes(const MoveState& state, std::vector<Move>& moves);

}  // namespace crossmesh

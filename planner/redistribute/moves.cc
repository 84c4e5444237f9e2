#include "planner/redistribute/moves.h"

#include <algorithm>
#include <utility>

namespace crossmesh {
namespace {

// More ways than these to choose atoms are looked at only in part.
constexpr int64_t kChoicesMax = 96;
// With so few atoms all free digits of a small tensor are worth a look: where primes mix, what lies
// beside what matters.
constexpr int kThoroughAtoms = 5;
constexpr size_t kParkingDigits = 2;

bool IsThorough(const SearchSpace& space) { return space.atoms() <= kThoroughAtoms; }

class ChoiceWalk {
 public:
  ChoiceWalk(const MoveState& state, StepKind kind, const AtomOptions& options,
             std::vector<Move>& moves)
      : state_(state), options_(options), moves_(moves), move_{kind, state.type} {}

  void Walk(int atom, const DigitSet& taken) {
    if (atom == state_.space.atoms()) {
      if (move_.after != state_.type) moves_.push_back(move_);
      return;
    }
    Walk(atom + 1, taken);
    for (const uint8_t code : options_[atom]) {
      DigitSet more = taken;
      if (code >= kFirstDigit) {
        if (taken[code - kFirstDigit]) continue;
        more |= state_.space.conflicts(code - kFirstDigit);
      }
      move_.after[atom] = code;
      Walk(atom + 1, more);
      move_.after[atom] = state_.type[atom];
    }
  }

 private:
  const MoveState& state_;
  const AtomOptions& options_;
  std::vector<Move>& moves_;
  Move move_;
};

// The move that gives every atom that has options the first that is still possible.
void AppendGreedy(const MoveState& state, StepKind kind, const AtomOptions& options,
                  std::vector<Move>& moves) {
  Move move{kind, state.type};
  DigitSet taken;
  for (int atom = 0; atom < state.space.atoms(); ++atom) {
    for (const uint8_t code : options[atom]) {
      if (code >= kFirstDigit) {
        if (taken[code - kFirstDigit]) continue;
        taken |= state.space.conflicts(code - kFirstDigit);
      }
      move.after[atom] = code;
      break;
    }
  }
  if (move.after != state.type) moves.push_back(move);
}

// All choices when these are few; else all atoms at once, and each by itself.
void AppendSome(const MoveState& state, StepKind kind, const AtomOptions& options,
                std::vector<Move>& moves) {
  int64_t choices = 1;
  for (const std::vector<uint8_t>& of_atom : options) {
    choices =
        std::min<int64_t>(choices * static_cast<int64_t>(of_atom.size() + 1), kChoicesMax + 1);
  }
  if (choices <= kChoicesMax) {
    AppendChoices(state, kind, options, moves);
    return;
  }
  AppendGreedy(state, kind, options, moves);
  for (int atom = 0; atom < state.space.atoms(); ++atom) {
    AtomOptions alone;
    alone[atom] = options[atom];
    AppendChoices(state, kind, alone, moves);
  }
}

// Digits where an atom may be for a while: first those that are in nobody's way, then those that
// another atom of its size wants, since a permute can bring that one there.
std::vector<uint8_t> ParkingDigits(const MoveState& state, int atom) {
  std::vector<uint8_t> codes;
  std::vector<uint8_t> wanted;
  for (const int digit : state.space.digits_of_size(state.space.size(atom))) {
    if (!state.IsFree(digit)) continue;
    const uint8_t code = static_cast<uint8_t>(kFirstDigit + digit);
    if (IsThorough(state.space) || (!state.in_the_way[digit] && codes.size() < kParkingDigits)) {
      codes.push_back(code);
    } else if (state.unmet[digit] && wanted.size() < kParkingDigits) {
      wanted.push_back(code);
    }
  }
  codes.insert(codes.end(), wanted.begin(), wanted.end());
  return codes;
}

bool AppendWantedSlices(const MoveState& state, std::vector<Move>& moves) {
  Move move{StepKind::kSlice, state.type};
  for (int atom = 0; atom < state.space.atoms(); ++atom) {
    if (state.type[atom] == kReplicatedCode && state.WantsCut(atom) &&
        state.IsFree(state.GoalDigit(atom))) {
      move.after[atom] = state.Goal(atom);
    }
  }
  if (move.after == state.type) return false;
  moves.push_back(move);
  return true;
}

void AppendSlices(const MoveState& state, std::vector<Move>& moves) {
  if (AppendWantedSlices(state, moves)) return;
  // Where more has to be exchanged than each device has, it costs less to exchange a share of it
  // and gather in the end.
  const bool crowded = (state.used & state.in_the_way).any();
  for (int atom = 0; atom < state.space.atoms(); ++atom) {
    if (state.type[atom] != kReplicatedCode || !(state.WantsCut(atom) || crowded)) continue;
    AtomOptions options;
    options[atom] = ParkingDigits(state, atom);
    AppendChoices(state, StepKind::kSlice, options, moves);
  }
}

void AppendExchanges(const MoveState& state, std::vector<Move>& moves) {
  AtomOptions wanted;
  AtomOptions all;
  for (int atom = 0; atom < state.space.atoms(); ++atom) {
    if (!state.IsCut(atom) || state.IsPlaced(atom)) continue;
    if (state.WantsCut(atom) && state.IsFree(state.GoalDigit(atom))) {
      wanted[atom].push_back(state.Goal(atom));
    } else if (state.in_the_way[state.DigitOf(atom)] ||
               (state.WantsCut(atom) && IsThorough(state.space))) {
      all[atom] = ParkingDigits(state, atom);
    }
  }
  for (int atom = 0; atom < state.space.atoms(); ++atom) {
    all[atom].insert(all[atom].end(), wanted[atom].begin(), wanted[atom].end());
  }
  AppendSome(state, StepKind::kAllToAll, all, moves);
}

void AppendGathers(const MoveState& state, std::vector<Move>& moves) {
  AtomOptions options;
  for (int atom = 0; atom < state.space.atoms(); ++atom) {
    if (state.IsCut(atom) && state.Goal(atom) == kReplicatedCode) {
      options[atom] = {kReplicatedCode};
    }
  }
  AppendSome(state, StepKind::kAllGather, options, moves);
}

void AppendReductions(const MoveState& state, std::vector<Move>& moves) {
  AtomOptions scattered;
  AtomOptions reduced;
  for (int atom = 0; atom < state.space.atoms(); ++atom) {
    if (state.type[atom] != kPartialCode || state.IsPlaced(atom)) continue;
    reduced[atom] = {kReplicatedCode};
    if (state.WantsCut(atom) && state.IsFree(state.GoalDigit(atom))) {
      scattered[atom] = {state.Goal(atom)};
    } else {
      scattered[atom] = ParkingDigits(state, atom);
    }
  }
  AppendSome(state, StepKind::kReduceScatter, scattered, moves);
  AppendSome(state, StepKind::kAllReduce, reduced, moves);
}

}  // namespace

MoveState::MoveState(const SearchSpace& search_space, const PackedType& packed)
    : space(search_space), type(packed) {
  for (int atom = 0; atom < space.atoms(); ++atom) {
    if (IsCut(atom)) {
      used.set(DigitOf(atom));
      blocked |= space.conflicts(DigitOf(atom));
    }
    if (!WantsCut(atom) || IsPlaced(atom)) continue;
    unmet.set(GoalDigit(atom));
    in_the_way |= space.conflicts(GoalDigit(atom));
  }
}

void AppendChoices(const MoveState& state, StepKind kind, const AtomOptions& options,
                   std::vector<Move>& moves) {
  ChoiceWalk(state, kind, options, moves).Walk(0, DigitSet());
}

void AppendMoves(const MoveState& state, std::vector<Move>& moves) {
  AppendSlices(state, moves);
  AppendExchanges(state, moves);
  AppendPermutes(state, moves);
  AppendGathers(state, moves);
  AppendReductions(state, moves);
}

}  // namespace crossmesh

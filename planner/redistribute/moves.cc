#include "planner/redistribute/moves.h"

#include <algorithm>
#include <optional>
#include <utility>

namespace crossmesh {
namespace {

// More ways than these to choose atoms are looked at only in part.
constexpr int64_t kChoicesMax = 200;
// With so few atoms all free digits of a small tensor are worth a look: where primes mix, what lies
// beside what matters.
constexpr int kThoroughAtoms = 5;
constexpr size_t kParkingDigits = 3;

bool IsThorough(const SearchSpace& space) { return space.atoms() <= kThoroughAtoms; }

// Gives atoms of a type their options, beside what other atoms of the move already got.
class ChoiceWalk {
 public:
  ChoiceWalk(const MoveState& state, StepKind kind, const AtomOptions& options,
             std::vector<Move>& moves)
      : state_(state), options_(options), moves_(moves), move_{kind, state.type} {}

  // Gives atoms what they have in `type` from now on.
  void Begin(const PackedType& type) {
    for (int atom = 0; atom < state_.space.atoms(); ++atom) {
      if (type[atom] == state_.type[atom]) continue;
      move_.after[atom] = type[atom];
      if (type[atom] >= kFirstDigit) taken_ |= state_.space.conflicts(type[atom] - kFirstDigit);
    }
  }

  // All ways; those that leave all as it is apart.
  void WalkAll(int atom = 0) {
    if (atom == state_.space.atoms()) {
      if (move_.after != state_.type) moves_.push_back(move_);
      return;
    }
    WalkAll(atom + 1);
    const DigitSet taken = taken_;
    bool parked = false;
    for (const uint8_t code : options_[atom]) {
      const bool neutral = IsNeutral(code);
      if ((neutral && parked) || IsMirrored(atom, code) || !Give(atom, code)) continue;
      parked |= neutral;
      WalkAll(atom + 1);
      move_.after[atom] = state_.type[atom];
      taken_ = taken;
    }
  }

  // All atoms at once, each alone, and each two.
  void WalkSome() {
    const Move begun = move_;
    const DigitSet taken = taken_;
    const auto restart = [&] {
      move_ = begun;
      taken_ = taken;
    };
    for (int atom = 0; atom < state_.space.atoms(); ++atom) GiveFirst(atom);
    if (move_ != begun) moves_.push_back(move_);
    for (int atom = 0; atom < state_.space.atoms(); ++atom) {
      for (const uint8_t code : options_[atom]) {
        restart();
        if (!Give(atom, code)) continue;
        moves_.push_back(move_);
        for (int other = 0; other < atom; ++other) {
          const DigitSet before = taken_;
          if (!GiveFirst(other)) continue;
          moves_.push_back(move_);
          move_.after[other] = begun.after[other];
          taken_ = before;
        }
      }
    }
    restart();
  }

 private:
  // Digits that are in nobody's way are as good as one another.
  bool IsNeutral(uint8_t code) const {
    return !IsThorough(state_.space) && code >= kFirstDigit &&
           !state_.in_the_way[code - kFirstDigit];
  }

  // Of two atoms of one size that are out of their places, either may have either digit: only one
  // of the two ways is looked at.
  bool IsMirrored(int atom, uint8_t code) const {
    if (IsThorough(state_.space) || code < kFirstDigit || code == state_.Goal(atom)) return false;
    for (int other = 0; other < atom; ++other) {
      const uint8_t given = move_.after[other];
      if (given != state_.type[other] && given > code && given != state_.Goal(other) &&
          state_.space.size(other) == state_.space.size(atom)) {
        return true;
      }
    }
    return false;
  }

  bool Give(int atom, uint8_t code) {
    if (code >= kFirstDigit) {
      if (taken_[code - kFirstDigit]) return false;
      taken_ |= state_.space.conflicts(code - kFirstDigit);
    }
    move_.after[atom] = code;
    return true;
  }
  bool GiveFirst(int atom) {
    return std::ranges::any_of(options_[atom], [&](uint8_t code) { return Give(atom, code); });
  }

  const MoveState& state_;
  const AtomOptions& options_;
  std::vector<Move>& moves_;
  Move move_;
  DigitSet taken_;  // digits that conflict with new ones
};

int64_t CountChoices(const AtomOptions& options) {
  int64_t choices = 1;
  for (const std::vector<uint8_t>& of_atom : options) {
    choices =
        std::min<int64_t>(choices * static_cast<int64_t>(of_atom.size() + 1), kChoicesMax + 1);
  }
  return choices;
}

// All choices when these are few.
void AppendSome(const MoveState& state, StepKind kind, const AtomOptions& options,
                std::vector<Move>& moves) {
  ChoiceWalk walk(state, kind, options, moves);
  if (CountChoices(options) <= kChoicesMax) {
    walk.WalkAll();
  } else {
    walk.WalkSome();
  }
}

// The digits of a dimension that are cut, next to one another: from stride `low` up to `top`.
struct Span {
  int64_t low;
  int64_t top;
};

// The span of cut digits that a digit conflicts with.
Span BlockingSpan(const MoveState& state, const Digit& wanted) {
  Span span{.low = wanted.stride * wanted.size, .top = wanted.stride};
  for (size_t i = 0; i < state.space.digits().size(); ++i) {
    const Digit& digit = state.space.digits()[i];
    if (!state.used[i] || digit.dimension != wanted.dimension) continue;
    span.low = std::min(span.low, digit.stride);
    span.top = std::max(span.top, digit.stride * digit.size);
  }
  return span;
}

// Digits right below and right above what blocks wanted digits of an atom's size, as many as are
// wanted: cut there, a permute can bring the wanted atoms into their places.
void AppendNeighbours(const MoveState& state, int64_t size, std::vector<uint8_t>& codes) {
  std::vector<int64_t> below(state.space.types().shape().rank(), 0);
  std::vector<int64_t> above(below.size(), 0);
  for (const int number : state.space.digits_of_size(size)) {
    if (!state.unmet[number] || state.IsFree(number)) continue;
    const Digit& wanted = state.space.digits()[number];
    const Span span = BlockingSpan(state, wanted);
    int64_t& low = below[wanted.dimension];
    int64_t& top = above[wanted.dimension];
    low = (low == 0 ? span.low : low) / size;
    top = top == 0 ? span.top : top * size;
    for (const int64_t stride : {low, top}) {
      const std::optional<int> digit = state.space.Find({wanted.dimension, stride, size});
      if (digit.has_value() && state.IsFree(*digit)) {
        codes.push_back(static_cast<uint8_t>(kFirstDigit + *digit));
      }
    }
  }
}

// Digits where an atom may be for a while: first those that are in nobody's way, then those that
// another atom of its size wants, or from where a permute can bring that one there.
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
  if (IsThorough(state.space)) return codes;
  AppendNeighbours(state, state.space.size(atom), wanted);
  for (const uint8_t code : wanted) {
    if (std::ranges::find(codes, code) == codes.end()) codes.push_back(code);
  }
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
  // Where more has to be exchanged than each device has, it costs less to exchange a share of it
  // and gather in the end.
  bool crowded = (state.used & state.in_the_way).any();
  for (int atom = 0; atom < state.space.atoms(); ++atom) {
    crowded |= state.type[atom] == kPartialCode && !state.IsPlaced(atom);
  }
  AtomOptions options;
  for (int atom = 0; atom < state.space.atoms(); ++atom) {
    if (state.type[atom] == kReplicatedCode && (state.WantsCut(atom) || crowded)) {
      options[atom] = ParkingDigits(state, atom);
    }
  }
  AppendSome(state, StepKind::kSlice, options, moves);
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
    } else if (state.WantsCut(atom)) {
      AppendNeighbours(state, state.space.size(atom), all[atom]);
    }
  }
  if (CountChoices(wanted) * CountChoices(all) <= kChoicesMax) {
    for (int atom = 0; atom < state.space.atoms(); ++atom) {
      all[atom].insert(all[atom].end(), wanted[atom].begin(), wanted[atom].end());
    }
    AppendChoices(state, StepKind::kAllToAll, all, moves);
    return;
  }
  // Either all that can go where they are wanted do, or none.
  AppendSome(state, StepKind::kAllToAll, all, moves);
  PackedType placed = state.type;
  for (int atom = 0; atom < state.space.atoms(); ++atom) {
    if (!wanted[atom].empty()) placed[atom] = wanted[atom].front();
  }
  if (placed == state.type) return;
  moves.push_back({StepKind::kAllToAll, placed});
  ChoiceWalk walk(state, StepKind::kAllToAll, all, moves);
  walk.Begin(placed);
  if (CountChoices(all) <= kChoicesMax) {
    walk.WalkAll();
  } else {
    walk.WalkSome();
  }
}

void AppendGathers(const MoveState& state, std::vector<Move>& moves) {
  AtomOptions all;
  AtomOptions in_the_way;
  for (int atom = 0; atom < state.space.atoms(); ++atom) {
    if (!state.IsCut(atom) || state.Goal(atom) != kReplicatedCode) continue;
    all[atom] = {kReplicatedCode};
    if (state.in_the_way[state.DigitOf(atom)]) in_the_way[atom] = all[atom];
  }
  AppendSome(state, StepKind::kAllGather, state.unmet.none() ? all : in_the_way, moves);
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
  ChoiceWalk(state, kind, options, moves).WalkAll();
}

void AppendMoves(const MoveState& state, std::vector<Move>& moves) {
  // It costs nothing, and makes all else smaller.
  if (AppendWantedSlices(state, moves)) return;
  AppendSlices(state, moves);
  AppendExchanges(state, moves);
  AppendFillings(state, moves);
  AppendPermutes(state, moves);
  AppendGathers(state, moves);
  AppendReductions(state, moves);
}

}  // namespace crossmesh

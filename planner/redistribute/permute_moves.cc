#include "planner/redistribute/moves.h"

#include <algorithm>
#include <optional>
#include <utility>

namespace crossmesh {
namespace {

// Neighbouring digits of a dimension that are cut: from stride `low` up to `top`.
struct DigitRun {
  int dimension = 0;
  int64_t low = 0;
  int64_t top = 0;
};

std::vector<DigitRun> RunsOf(const MoveState& state) {
  std::vector<int> used;
  for (int atom = 0; atom < state.space.atoms(); ++atom) {
    if (state.IsCut(atom)) used.push_back(state.DigitOf(atom));
  }
  std::ranges::sort(used);  // by dimension, then the most major first
  std::vector<DigitRun> runs;
  for (const int number : used) {
    const Digit& digit = state.space.digits()[number];
    const int64_t top = digit.stride * digit.size;
    if (!runs.empty() && runs.back().dimension == digit.dimension && runs.back().low == top) {
      runs.back().low = digit.stride;
    } else {
      runs.push_back({digit.dimension, digit.stride, top});
    }
  }
  return runs;
}

bool Within(const Digit& digit, const DigitRun& run) {
  return digit.dimension == run.dimension && digit.stride % run.low == 0 &&
         run.top % (digit.stride * digit.size) == 0;
}

// Which atoms fill the digits that nobody wants: what cuts there now, atoms that are wanted
// nowhere, or atoms that are wanted elsewhere.
enum class Filling : uint8_t { kPresent, kUnwanted, kWanted };

class PermuteBuilder {
 public:
  PermuteBuilder(const MoveState& state, const std::vector<DigitRun>& runs, Filling filling)
      : state_(state), runs_(runs), filling_(filling), after_(state.type) {
    for (int atom = 0; atom < state.space.atoms(); ++atom) {
      pool_[atom] = state.IsCut(atom) || state.type[atom] == kReplicatedCode;
      if (state.IsCut(atom)) after_[atom] = kReplicatedCode;
    }
  }

  // Nothing when the rest of a run cannot be filled.
  std::optional<PackedType> Build() {
    for (const DigitRun& run : runs_) PlaceWanted(run);
    for (const DigitRun& run : runs_) {
      if (!FillRun(run)) return std::nullopt;
    }
    return after_;
  }

 private:
  void Place(int atom, int digit) {
    pool_[atom] = false;
    after_[atom] = static_cast<uint8_t>(kFirstDigit + digit);
    placed_.push_back(digit);
  }

  void PlaceWanted(const DigitRun& run) {
    for (int atom = 0; atom < state_.space.atoms(); ++atom) {
      if (!pool_[atom] || !state_.WantsCut(atom)) continue;
      if (Within(state_.space.digits()[state_.GoalDigit(atom)], run)) {
        Place(atom, state_.GoalDigit(atom));
      }
    }
  }

  bool FillRun(const DigitRun& run) {
    std::vector<Digit> wanted;
    for (const int number : placed_) {
      const Digit& digit = state_.space.digits()[number];
      if (Within(digit, run)) wanted.push_back(digit);
    }
    std::ranges::sort(wanted, std::ranges::greater(), &Digit::stride);
    int64_t top = run.top;
    for (const Digit& digit : wanted) {
      if (!FillGap({run.dimension, digit.stride * digit.size, top})) return false;
      top = digit.stride;
    }
    return FillGap({run.dimension, run.low, top});
  }

  // With the digits that cut there now where they fit, else with any.
  bool FillGap(const DigitRun& gap) {
    int64_t top = gap.top;
    while (top > gap.low) {
      const int atom = Choose(gap, top);
      if (atom < 0) return false;
      const int64_t stride = top / state_.space.size(atom);
      const std::optional<int> digit =
          state_.space.Find({gap.dimension, stride, state_.space.size(atom)});
      if (!digit.has_value()) return false;
      Place(atom, *digit);
      top = stride;
    }
    return true;
  }

  // The best atom of the pool for the digit below `top`; -1: none fits.
  int Choose(const DigitRun& gap, int64_t top) const {
    const int present = CutBelow(gap.dimension, top);
    int best = -1;
    int best_rank = 0;
    for (int atom = 0; atom < state_.space.atoms(); ++atom) {
      if (!pool_[atom] || top / gap.low % state_.space.size(atom) != 0) continue;
      const int rank = Rank(atom, present);
      if (best < 0 || rank < best_rank) {
        best = atom;
        best_rank = rank;
      }
    }
    return best;
  }

  // The atom that cuts there now; -1: none.
  int CutBelow(int dimension, int64_t top) const {
    for (int atom = 0; atom < state_.space.atoms(); ++atom) {
      if (!state_.IsCut(atom)) continue;
      const Digit& digit = state_.space.digits()[state_.DigitOf(atom)];
      if (digit.dimension == dimension && digit.stride * digit.size == top) return atom;
    }
    return -1;
  }

  int Rank(int atom, int cut_there) const {
    // As what cuts there now, so that the rest fits as well.
    const bool same_size =
        cut_there >= 0 && state_.space.size(cut_there) == state_.space.size(atom);
    const bool present = cut_there == atom;
    const bool wanted = state_.WantsCut(atom);
    int rank = same_size ? 0 : 8;
    switch (filling_) {
      case Filling::kPresent:
        rank += present ? 0 : state_.IsCut(atom) ? 1 : 2;
        break;
      case Filling::kUnwanted:
        rank += (wanted ? 4 : 0) + (present ? 0 : state_.IsCut(atom) ? 1 : 2);
        break;
      case Filling::kWanted:
        rank += (wanted ? 0 : 4) + (present ? 0 : state_.IsCut(atom) ? 1 : 2);
        break;
    }
    return rank;
  }

  const MoveState& state_;
  const std::vector<DigitRun>& runs_;
  const Filling filling_;
  AtomSet pool_;  // atoms that may still be placed
  std::vector<int> placed_;
  PackedType after_;
};

}  // namespace

void AppendPermutes(const MoveState& state, std::vector<Move>& moves) {
  const std::vector<DigitRun> runs = RunsOf(state);
  const size_t first = moves.size();
  for (const Filling filling : {Filling::kPresent, Filling::kUnwanted, Filling::kWanted}) {
    const std::optional<PackedType> after = PermuteBuilder(state, runs, filling).Build();
    if (!after.has_value() || *after == state.type) continue;
    const Move move{StepKind::kPermute, *after};
    if (std::find(moves.begin() + static_cast<std::ptrdiff_t>(first), moves.end(), move) ==
        moves.end()) {
      moves.push_back(move);
    }
  }
}

}  // namespace crossmesh

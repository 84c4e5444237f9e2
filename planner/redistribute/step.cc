#include "planner/redistribute/step.h"

#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "planner/redistribute/overlap.h"

#include <algorithm>
#include <utility>

#include <absl/container/flat_hash_map.h>
#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

// Where an atom is in a type.
struct AtomPlace {
  enum class State : uint8_t { kReplicated, kPartial, kCut };
  State state = State::kReplicated;
  int dimension = 0;
  int64_t stride = 0;
  int64_t rank = 0;  // among the cuts by rule, which have no strides
  UnevenRule rule = UnevenRule::kExact;
  bool joined = false;
  friend bool operator==(const AtomPlace&, const AtomPlace&) = default;
};

std::vector<AtomPlace> PlacesOf(const TypeSpace& space, const LocalType& type) {
  std::vector<AtomPlace> places(space.atom_count());
  for (const int32_t atom : type.partial) places[atom].state = AtomPlace::State::kPartial;
  for (size_t dimension = 0; dimension < type.dimensions.size(); ++dimension) {
    const std::vector<DimensionCut>& cuts = type.dimensions[dimension];
    for (size_t i = 0; i < cuts.size(); ++i) {
      places[cuts[i].atom] = {.state = AtomPlace::State::kCut,
                              .dimension = static_cast<int>(dimension),
                              .stride = cuts[i].stride,
                              .rank = cuts[i].stride == 0 ? static_cast<int64_t>(i) : 0,
                              .rule = cuts[i].rule,
                              .joined = cuts[i].joined};
    }
  }
  return places;
}

// The digits of a dimension that are cut, neighbours joined: two types cut a dimension into the
// same blocks when these are equal.
std::vector<std::pair<int64_t, int64_t>> BlocksOf(const TypeSpace& space,
                                                  const std::vector<DimensionCut>& cuts) {
  std::vector<std::pair<int64_t, int64_t>> runs;  // stride, and stride * size of the first
  for (const DimensionCut& cut : cuts) {
    const int64_t top = cut.stride * space.atoms()[cut.atom].size;
    if (!runs.empty() && runs.back().first == top && cut.stride > 0) {
      runs.back().first = cut.stride;
    } else {
      runs.emplace_back(cut.stride, top);
    }
  }
  return runs;
}

bool SameBlocks(const TypeSpace& space, const LocalType& a, const LocalType& b) {
  for (int dimension = 0; dimension < space.shape().rank(); ++dimension) {
    const std::vector<DimensionCut>& left = a.dimensions[dimension];
    const std::vector<DimensionCut>& right = b.dimensions[dimension];
    if (left == right) continue;
    const bool by_rule =
        (!left.empty() && left[0].stride == 0) || (!right.empty() && right[0].stride == 0);
    if (by_rule || BlocksOf(space, left) != BlocksOf(space, right)) return false;
  }
  return true;
}

// Whether a cut of `after` uses a digit, or a part of one, that `before` uses.
bool IsFree(const TypeSpace& space, const LocalType& before, const AtomPlace& place, int64_t size) {
  for (const DimensionCut& cut : before.dimensions[place.dimension]) {
    const int64_t used = cut.stride * space.atoms()[cut.atom].size;
    if (cut.stride == 0 || place.stride == 0) return false;
    if (cut.stride % (place.stride * size) != 0 && place.stride % used != 0) return false;
  }
  return true;
}

using State = AtomPlace::State;

struct StateChange {
  State before;
  State after;
};

StateChange ChangeOf(StepKind kind) {
  switch (kind) {
    case StepKind::kSlice:
      return {State::kReplicated, State::kCut};
    case StepKind::kAllGather:
      return {State::kCut, State::kReplicated};
    case StepKind::kReduceScatter:
      return {State::kPartial, State::kCut};
    case StepKind::kAllReduce:
      return {State::kPartial, State::kReplicated};
    case StepKind::kAllToAll:
    case StepKind::kPermute:
    case StepKind::kRelay:
      break;
  }
  return {State::kCut, State::kCut};
}

absl::Status Refused(const TypeSpace& space, const RedistributionStep& step,
                     absl::string_view expected) {
  return absl::InvalidArgumentError(absl::StrCat(StepKindName(step.kind), ": expected ", expected,
                                                 ", found ", space.Text(step.before), " to ",
                                                 space.Text(step.after)));
}

absl::Status CheckAtoms(const TypeSpace& space, const RedistributionStep& step) {
  const std::vector<AtomPlace> before = PlacesOf(space, step.before);
  const std::vector<AtomPlace> after = PlacesOf(space, step.after);
  const StateChange change = ChangeOf(step.kind);
  for (const int32_t atom : step.atoms) {
    if (before[atom].state != change.before || after[atom].state != change.after) {
      return Refused(space, step, "atoms that change as that kind does");
    }
    if (before[atom].state == State::kCut && before[atom].stride == 0) {
      return Refused(space, step, "dimensions that divide");
    }
    if (after[atom].state == State::kCut &&
        !IsFree(space, step.before, after[atom], space.atoms()[atom].size)) {
      return Refused(space, step, "digits that were not in use");
    }
  }
  return absl::OkStatus();
}

absl::Status CheckKind(const TypeSpace& space, const RedistributionStep& step) {
  if (step.kind == StepKind::kRelay || step.kind == StepKind::kPermute) {
    if (step.before.partial != step.after.partial) {
      return Refused(space, step, "the same partial atoms");
    }
    if (step.kind == StepKind::kPermute && !SameBlocks(space, step.before, step.after)) {
      return Refused(space, step, "the same blocks");
    }
    return absl::OkStatus();
  }
  return CheckAtoms(space, step);
}

}  // namespace

int64_t ReceivedElements(StepKind kind, int64_t local_elements, int64_t group) {
  switch (kind) {
    case StepKind::kSlice:
      return 0;
    case StepKind::kAllGather:
      return (group - 1) * local_elements;
    case StepKind::kAllToAll:
    case StepKind::kReduceScatter:
      return local_elements / group * (group - 1);
    case StepKind::kAllReduce:
      return 2 * (group - 1) * ((local_elements + group - 1) / group);
    case StepKind::kPermute:
      return local_elements;
    case StepKind::kRelay:
      break;  // FindNeediestDevice
  }
  return 0;
}

absl::StatusOr<RedistributionStep> MakeStep(const TypeSpace& space, StepKind kind,
                                            TypeChange change, StepStaging staging) {
  const auto& [before, after] = change;
  RETURN_IF_ERROR(space.Validate(before));
  RETURN_IF_ERROR(space.Validate(after));
  RedistributionStep step{.kind = kind, .before = before, .after = after};
  const std::vector<AtomPlace> from = PlacesOf(space, before);
  const std::vector<AtomPlace> to = PlacesOf(space, after);
  for (int32_t atom = 0; atom < space.atom_count(); ++atom) {
    if (from[atom] == to[atom]) continue;
    step.atoms.push_back(atom);
    step.group *= space.atoms()[atom].size;
  }
  RETURN_IF_ERROR(CheckKind(space, step));
  int64_t received = 0;
  if (kind == StepKind::kRelay) {
    const NeediestDevice neediest = FindNeediestDevice(space, before, after);
    received = neediest.missing_elements;
    step.busiest_device = neediest.device;
  } else if (!step.atoms.empty()) {
    received = ReceivedElements(kind, space.LocalElements(before), step.group);
  }
  step.bytes_received = received * space.item_bytes();
  if (kind == StepKind::kPermute || kind == StepKind::kRelay) step.group = space.devices();
  step.live_bytes = space.LocalBytes(before) + space.LocalBytes(after) +
                    (kind == StepKind::kSlice ? 0 : staging.bytes);
  return step;
}

std::vector<int64_t> PermuteSources(const TypeSpace& space, const LocalType& before,
                                    const LocalType& after) {
  const std::vector<AtomPlace> from = PlacesOf(space, before);
  const std::vector<AtomPlace> to = PlacesOf(space, after);
  // The least element of the block, and the device with its coordinates on moving atoms left out:
  // within one such pair as many devices have a block as are to have it.
  const auto key = [&](const LocalType& type, int64_t device) {
    int64_t first = 0;
    for (int dimension = 0; dimension < space.shape().rank(); ++dimension) {
      first *= space.shape()[dimension];
      for (const DimensionCut& cut : type.dimensions[dimension]) {
        first += cut.stride * space.Coordinate(device, cut.atom);
      }
    }
    int64_t still = device;
    for (int32_t atom = 0; atom < space.atom_count(); ++atom) {
      if (from[atom] == to[atom]) continue;
      still -= space.Coordinate(device, atom) * space.device_stride(atom);
    }
    return std::pair(first, still);
  };
  std::vector<int64_t> sources(space.devices(), -1);
  absl::flat_hash_map<std::pair<int64_t, int64_t>, std::vector<int64_t>> holders;
  for (int64_t device = space.devices(); device-- > 0;) {
    const std::pair<int64_t, int64_t> held = key(before, device);
    if (held == key(after, device)) {
      sources[device] = device;
    } else {
      holders[held].push_back(device);
    }
  }
  for (int64_t device = 0; device < space.devices(); ++device) {
    if (sources[device] >= 0) continue;
    std::vector<int64_t>& left = holders[key(after, device)];
    CHECK(!left.empty()) << "permute " << space.Text(before) << " to " << space.Text(after);
    sources[device] = left.back();
    left.pop_back();
  }
  return sources;
}

}  // namespace crossmesh

#include "planner/redistribute/testing/derivation_simulator.h"

#include "common/base/status_macros.h"
#include "common/mesh/layout.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

using Elements = std::map<int64_t, int64_t>;  // value of each element, by its place in the tensor

class Simulation {
 public:
  Simulation(const Derivation& derivation, uint64_t seed)
      : derivation_(derivation), space_(derivation.space()), seed_(seed) {}

  absl::Status Run() {
    for (int64_t device = 0; device < space_.devices(); ++device) {
      Elements& held = devices_.emplace_back();
      for (const int64_t element : Wanted(space_.source(), device)) {
        held[element] = Summand(element, Coordinates(device, space_.source().partial));
      }
    }
    for (const RedistributionStep& step : derivation_.steps()) {
      RETURN_IF_ERROR(Do(step));
    }
    return Compare();
  }

 private:
  // Values, and summands of them, by chance, the same on devices that replicate each other.
  int64_t Summand(int64_t element, int64_t coordinates) const {
    uint64_t bits = seed_ + static_cast<uint64_t>(element) * 0x9e3779b97f4a7c15 +
                    static_cast<uint64_t>(coordinates) * 0xbf58476d1ce4e5b9;
    bits = (bits ^ (bits >> 30)) * 0x94d049bb133111eb;
    return static_cast<int64_t>((bits ^ (bits >> 31)) % 1000003);
  }

  int64_t Reduce(int64_t a, int64_t b) const {
    switch (space_.reduction()) {
      case PartialReduction::kSum:
      case PartialReduction::kMean:  // a sum, divided once in the end
        return a + b;
      case PartialReduction::kMin:
        return std::min(a, b);
      case PartialReduction::kMax:
        return std::max(a, b);
    }
    return 0;
  }

  // Coordinates on some atoms, as one number.
  int64_t Coordinates(int64_t device, const std::vector<int32_t>& atoms) const {
    int64_t number = 0;
    for (const int32_t atom : atoms) {
      number = number * space_.atoms()[atom].size + space_.Coordinate(device, atom);
    }
    return number;
  }

  // Devices that differ from one in no other atoms than these.
  std::vector<int64_t> Group(int64_t device, const std::vector<int32_t>& atoms) const {
    std::vector<int64_t> members;
    for (int64_t other = 0; other < space_.devices(); ++other) {
      bool same = true;
      for (int32_t atom = 0; atom < space_.atom_count(); ++atom) {
        same &= std::ranges::find(atoms, atom) != atoms.end() ||
                space_.Coordinate(device, atom) == space_.Coordinate(other, atom);
      }
      if (same) members.push_back(other);
    }
    return members;
  }

  bool Has(const LocalType& type, int dimension, int64_t index, int64_t device) const {
    const std::vector<DimensionCut>& cuts = type.dimensions[dimension];
    if (!cuts.empty() && cuts.front().stride == 0) {
      std::vector<int64_t> sizes;
      int64_t part = 0;
      for (const DimensionCut& cut : cuts) {
        const int64_t size = space_.atoms()[cut.atom].size;
        if (!cut.joined) sizes.push_back(1);
        sizes.back() *= size;
        part = part * size + space_.Coordinate(device, cut.atom);
      }
      const Interval held =
          PartsOfDimension(cuts.front().rule, space_.shape()[dimension], sizes)[part];
      return index >= held.begin && index < held.end;
    }
    return std::ranges::all_of(cuts, [&](const DimensionCut& cut) {
      return index / cut.stride % space_.atoms()[cut.atom].size ==
             space_.Coordinate(device, cut.atom);
    });
  }

  // The elements that a type gives a device.
  std::vector<int64_t> Wanted(const LocalType& type, int64_t device) const {
    std::vector<int64_t> elements = {0};
    for (int dimension = 0; dimension < space_.shape().rank(); ++dimension) {
      std::vector<int64_t> more;
      for (const int64_t element : elements) {
        AppendIndices(type, dimension, device, element * space_.shape()[dimension], more);
      }
      elements = std::move(more);
    }
    return elements;
  }

  void AppendIndices(const LocalType& type, int dimension, int64_t device, int64_t first,
                     std::vector<int64_t>& elements) const {
    for (int64_t index = 0; index < space_.shape()[dimension]; ++index) {
      if (Has(type, dimension, index, device)) elements.push_back(first + index);
    }
  }

  absl::Status Wrong(const RedistributionStep& step, int64_t device, int64_t element) const {
    return absl::InternalError(absl::StrCat(StepKindName(step.kind), " ", space_.Text(step.before),
                                            " -> ", space_.Text(step.after), ": device ", device,
                                            ", element ", element));
  }

  // The elements of `wanted` that a device holds.
  Elements Piece(int64_t holder, const std::set<int64_t>& wanted) const {
    Elements piece;
    for (const auto& [element, value] : devices_[holder]) {
      if (wanted.contains(element)) piece[element] = value;
    }
    return piece;
  }

  // What a device gets from the members of its group; counts what it receives.
  absl::Status Exchange(const RedistributionStep& step, int64_t device, Elements& after,
                        int64_t& received) const {
    const std::vector<int64_t> wanted = Wanted(step.after, device);
    const std::set<int64_t> wanted_set(wanted.begin(), wanted.end());
    const bool reduces = step.kind == StepKind::kReduceScatter || step.kind == StepKind::kAllReduce;
    const std::vector<int64_t> members = Group(device, step.atoms);
    for (const int64_t member : members) {
      const Elements piece = Piece(member, wanted_set);
      const int64_t size = static_cast<int64_t>(piece.size());
      const int64_t all = static_cast<int64_t>(devices_[member].size());
      const bool uniform = step.kind == StepKind::kAllGather || step.kind == StepKind::kAllReduce
                               ? size == all
                               : size * static_cast<int64_t>(members.size()) == all;
      if (!uniform) return Wrong(step, device, size);
      for (const auto& [element, value] : piece) {
        const auto [found, added] = after.try_emplace(element, value);
        if (!added && !reduces) return Wrong(step, device, element);
        if (!added) found->second = Reduce(found->second, value);
      }
      if (member != device) received += size;
    }
    if (step.kind == StepKind::kAllReduce) {
      const int64_t group = static_cast<int64_t>(members.size());
      const int64_t size = static_cast<int64_t>(after.size());
      received = 2 * (group - 1) * ((size + group - 1) / group);
    }
    return absl::OkStatus();
  }

  // What a device gets in a relay: each element from any device with its summand.
  void Relay(const RedistributionStep& step, int64_t device, Elements& after,
             int64_t& received) const {
    const int64_t summand = Coordinates(device, step.before.partial);
    for (const int64_t element : Wanted(step.after, device)) {
      const auto own = devices_[device].find(element);
      if (own != devices_[device].end()) {
        after.insert(*own);
        continue;
      }
      for (int64_t holder = 0; holder < space_.devices(); ++holder) {
        if (Coordinates(holder, step.before.partial) != summand) continue;
        const auto found = devices_[holder].find(element);
        if (found == devices_[holder].end()) continue;
        after.insert(*found);
        ++received;
        break;
      }
    }
  }

  absl::Status Do(const RedistributionStep& step) {
    std::vector<Elements> after(devices_.size());
    int64_t most_received = 0;
    std::vector<int64_t> sources;
    if (step.kind == StepKind::kPermute) {
      sources = PermuteSources(space_, step.before, step.after);
      if (std::set<int64_t>(sources.begin(), sources.end()).size() != sources.size()) {
        return Wrong(step, -1, -1);
      }
    }
    for (int64_t device = 0; device < space_.devices(); ++device) {
      int64_t received = 0;
      const std::vector<int64_t> wanted = Wanted(step.after, device);
      if (step.kind == StepKind::kPermute) {
        after[device] = devices_[sources[device]];
        if (sources[device] != device) received = static_cast<int64_t>(after[device].size());
      } else if (step.kind == StepKind::kRelay) {
        Relay(step, device, after[device], received);
      } else if (step.kind == StepKind::kSlice) {
        after[device] = Piece(device, std::set<int64_t>(wanted.begin(), wanted.end()));
      } else {
        RETURN_IF_ERROR(Exchange(step, device, after[device], received));
      }
      if (after[device].size() != wanted.size()) return Wrong(step, device, -1);
      for (const int64_t element : wanted) {
        if (!after[device].contains(element)) return Wrong(step, device, element);
      }
      most_received = std::max(most_received, received);
    }
    if (most_received * space_.item_bytes() != step.bytes_received) {
      return absl::InternalError(absl::StrCat(StepKindName(step.kind), ": expected ",
                                              step.bytes_received, " bytes received, found ",
                                              most_received * space_.item_bytes()));
    }
    devices_ = std::move(after);
    return absl::OkStatus();
  }

  int64_t Whole(int64_t element) const {
    int64_t parts = 1;
    for (const int32_t atom : space_.source().partial) parts *= space_.atoms()[atom].size;
    int64_t value = Summand(element, 0);
    for (int64_t part = 1; part < parts; ++part) value = Reduce(value, Summand(element, part));
    return value;
  }

  // In the end: the tensor, cut anew; what is still partial comes to it when it is reduced.
  absl::Status Compare() const {
    const LocalType& type = space_.destination();
    for (int64_t device = 0; device < space_.devices(); ++device) {
      const std::vector<int64_t> members = Group(device, type.partial);
      for (const int64_t element : Wanted(type, device)) {
        int64_t value = devices_[members.front()].at(element);
        for (size_t i = 1; i < members.size(); ++i) {
          value = Reduce(value, devices_[members[i]].at(element));
        }
        if (value == Whole(element)) continue;
        return absl::InternalError(absl::StrCat("device ", device, ", element ", element,
                                                ": expected ", Whole(element), ", found ", value));
      }
    }
    return absl::OkStatus();
  }

  const Derivation& derivation_;
  const TypeSpace& space_;
  const uint64_t seed_;
  std::vector<Elements> devices_;
};

}  // namespace

absl::Status SimulateDerivation(const Derivation& derivation, uint64_t seed) {
  return Simulation(derivation, seed).Run();
}

}  // namespace crossmesh

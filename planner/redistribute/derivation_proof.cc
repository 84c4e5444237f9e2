#include "planner/redistribute/derivation_proof.h"

#include "common/base/status_macros.h"
#include "planner/redistribute/overlap.h"

#include <algorithm>
#include <vector>

#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

template <typename... Parts>
absl::Status Wrong(const Parts&... parts) {
  return absl::InternalError(absl::StrCat(parts...));
}

// Proves one step on the indices of every device.
class StepProof {
 public:
  StepProof(const TypeSpace& space, const RedistributionStep& step)
      : space_(space), step_(step), overlap_(space, step.before, step.after) {}

  absl::Status Prove() {
    switch (step_.kind) {
      case StepKind::kSlice:
      case StepKind::kAllGather:
      case StepKind::kAllToAll:
      case StepKind::kReduceScatter:
      case StepKind::kAllReduce:
        return ProveGroups();
      case StepKind::kPermute:
        return ProvePermute();
      case StepKind::kRelay:
        return ProveRelay();
    }
    return absl::OkStatus();
  }

 private:
  // The members of a device's group: it with every coordinate on the step's atoms.
  std::vector<int64_t> GroupOf(int64_t device) const {
    std::vector<int64_t> members = {device};
    for (const int32_t atom : step_.atoms) {
      const int64_t stride = space_.device_stride(atom);
      std::vector<int64_t> more;
      for (const int64_t member : members) {
        const int64_t first = member - space_.Coordinate(member, atom) * stride;
        for (int64_t i = 0; i < space_.atoms()[atom].size; ++i) more.push_back(first + i * stride);
      }
      members = std::move(more);
    }
    return members;
  }

  bool reduces() const {
    return step_.kind == StepKind::kReduceScatter || step_.kind == StepKind::kAllReduce;
  }

  // A slice has only its own. Members of an exchange hold different elements, since they differ in
  // atoms that cut; those of a reduction hold all the same ones.
  absl::Status ProveGroups() {
    for (int64_t device = 0; device < space_.devices(); ++device) {
      const int64_t wanted = overlap_.ElementsAfter(device);
      if (step_.kind == StepKind::kSlice) {
        if (overlap_.Elements(device, device) != wanted) return Mismatch(device, wanted, device);
        continue;
      }
      int64_t received = 0;
      const std::vector<int64_t> members = GroupOf(device);
      const auto group = static_cast<int64_t>(members.size());
      const int64_t piece = reduces() ? wanted : wanted / group;
      for (const int64_t member : members) {
        const int64_t elements = overlap_.Elements(member, device);
        if (elements != piece) return Mismatch(device, piece, member);
        received += elements;
      }
      if (received != (reduces() ? group : 1) * wanted) return Mismatch(device, wanted, device);
    }
    return absl::OkStatus();
  }

  absl::Status ProvePermute() {
    std::vector<bool> sends(space_.devices(), false);
    const std::vector<int64_t> sources = PermuteSources(space_, step_.before, step_.after);
    for (int64_t device = 0; device < space_.devices(); ++device) {
      const int64_t source = sources[device];
      if (sends[source]) {
        return Wrong(Name(), ": expected a bijection, found device ", source, " to send twice");
      }
      sends[source] = true;
      const int64_t wanted = overlap_.ElementsAfter(device);
      if (overlap_.Elements(source, device) != wanted) return Mismatch(device, wanted, source);
      RETURN_IF_ERROR(ProveSameSummand(source, device));
    }
    return absl::OkStatus();
  }

  absl::Status ProveSameSummand(int64_t source, int64_t device) const {
    for (const int32_t atom : step_.before.partial) {
      if (space_.Coordinate(source, atom) == space_.Coordinate(device, atom)) continue;
      return Wrong(Name(), ": expected the summand of device ", device, ", found that of ", source);
    }
    return absl::OkStatus();
  }

  // The parts of every dimension are the whole dimension, so whatever a device misses is somewhere,
  // and with the device's coordinate on partial atoms.
  absl::Status ProveRelay() {
    for (int dimension = 0; dimension < space_.shape().rank(); ++dimension) {
      const int64_t parts = space_.Parts(step_.before.dimensions[dimension]);
      int64_t held = 0;
      for (int64_t part = 0; part < parts; ++part) {
        for (const Interval& indices : space_.IndicesOf(step_.before, dimension, part)) {
          held += indices.length();
        }
      }
      if (held == space_.shape()[dimension]) continue;
      return Wrong(Name(), ": expected parts of all ", space_.shape()[dimension],
                   " indices of dimension ", dimension, ", found ", held);
    }
    return absl::OkStatus();
  }

  std::string Name() const {
    return absl::StrCat(StepKindName(step_.kind), " ", space_.Text(step_.before), " -> ",
                        space_.Text(step_.after));
  }

  absl::Status Mismatch(int64_t device, int64_t expected, int64_t from) {
    return Wrong(Name(), ": expected ", expected, " elements for device ", device, " from ", from,
                 ", found ", overlap_.Elements(from, device));
  }

  const TypeSpace& space_;
  const RedistributionStep& step_;
  Overlap overlap_;
};

absl::Status ProveCosts(const TypeSpace& space, const RedistributionStep& step,
                        const DerivationLimits& limits) {
  const absl::StatusOr<RedistributionStep> remade =
      MakeStep(space, step.kind, {step.before, step.after}, limits.staging);
  if (!remade.ok()) return Wrong(remade.status().message());
  if (remade->atoms != step.atoms || remade->group != step.group ||
      remade->bytes_received != step.bytes_received || remade->live_bytes != step.live_bytes) {
    return Wrong(StepKindName(step.kind), " ", space.Text(step.before), " -> ",
                 space.Text(step.after), ": expected group ", remade->group, ", received ",
                 remade->bytes_received, ", live ", remade->live_bytes, ", found ", step.group,
                 ", ", step.bytes_received, ", ", step.live_bytes);
  }
  return absl::OkStatus();
}

absl::Status ProveLimit(absl::string_view name, int64_t found, std::optional<int64_t> limit) {
  if (found <= limit.value_or(INT64_MAX)) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat(name, ": expected at most ", *limit, ", found ", found));
}

}  // namespace

absl::Status ProveDerivation(const Derivation& derivation, const DerivationLimits& limits) {
  const TypeSpace& space = derivation.space();
  const LocalType* type = &space.source();
  for (const RedistributionStep& step : derivation.steps()) {
    if (step.before != *type) {
      return Wrong(StepKindName(step.kind), ": expected to begin with ", space.Text(*type),
                   ", found ", space.Text(step.before));
    }
    RETURN_IF_ERROR(ProveCosts(space, step, limits));
    RETURN_IF_ERROR(StepProof(space, step).Prove());
    type = &step.after;
  }
  if (*type != space.destination()) {
    return Wrong("derivation: expected to end with ", space.Text(space.destination()), ", found ",
                 space.Text(*type));
  }
  RETURN_IF_ERROR(
      ProveLimit("peak of live bytes", derivation.peak_live_bytes(), limits.live_bytes_max));
  return ProveLimit("largest local array", derivation.peak_local_bytes(), limits.local_bytes_max);
}

}  // namespace crossmesh

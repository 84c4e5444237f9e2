#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include <absl/strings/string_view.h>

namespace crossmesh {

class TensorTable;
struct Reduction;

// m is the elements of a local array before the step, N the devices of a group.
enum class StepKind : uint8_t {
  kSlice,          // each device keeps a part of its own: nothing is received
  kAllGather,      // (N-1) m
  kAllToAll,       // m (N-1)/N; over several atoms and dimensions at once
  kPermute,        // m, and nothing by devices whose block stays
  kReduceScatter,  // m (N-1)/N; onto several dimensions at once
  kAllReduce,      // 2 (N-1) m/N, m/N rounded up
  kRelay,          // the elements that a device misses, from any that has them
};
inline constexpr size_t kStepKinds = static_cast<size_t>(StepKind::kRelay) + 1;
absl::string_view StepKindName(StepKind kind);  // "slice", "all_gather", ..., "relay"

// What a step of a course does, by the axes that cut its tensors before and after it. Slices that
// are done along with another kind do not count; kinds that differ from tensor to tensor, or that
// are done at once, are a relay, and so is what cuts unevenly, changes the mesh, or gives tiles one
// by one. Cost: groups times axes.
StepKind FindStepKind(const TensorTable& table, const std::optional<Reduction>& reduction);

}  // namespace crossmesh

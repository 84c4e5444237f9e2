#pragma once

#include "common/reshard/reshard_inputs.h"
#include "crossmesh/v1/reshard.pb.h"

#include <memory>
#include <string>

#include <absl/status/statusor.h>

namespace crossmesh {

// What was found under the names in a specification; null where it has the object inline.
struct NamedObjects {
  std::shared_ptr<const Manifest> manifest;
  std::shared_ptr<const Mesh> source_mesh;
  std::shared_ptr<const Mesh> destination_mesh;
};

// The most layout rules of a side.
inline constexpr int kReshardRulesMax = 4096;

// InvalidArgument names the field. Cost: linear in the specification.
absl::StatusOr<ReshardInputs> FromProto(const v1::ReshardSpec& proto, const NamedObjects& named);

// By name: "redistribute" where none is named and something is said of it, which no other one does.
std::string StrategyOf(const v1::ReshardSpec& proto);

// Whether source and destination of a device are one storage.
bool SharesStorage(const v1::ReshardSpec& proto);

}  // namespace crossmesh

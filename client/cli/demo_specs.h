#pragma once

#include "common/mesh/manifest.h"
#include "common/mesh/mesh.h"
#include "common/plan/tensor_table.h"
#include "crossmesh/v1/reshard.pb.h"

#include <string>
#include <vector>

#include <absl/status/statusor.h>
#include <google/protobuf/repeated_ptr_field.h>

namespace crossmesh {

// The reshards of a demo. Devices in host memory are the first of their workers, GPUs the second
// ones; tensors lie on both alike.
struct DemoSpecs {
  static constexpr char kSourceStorage[] = "training";
  static constexpr char kDestinationStorage[] = "serving";

  v1::ReshardSpec move;  // what is shown
  // Memory of GPUs is filled and read by way of the host's; none of these without GPUs.
  std::vector<v1::ReshardSpec> load;   // sources, from host memory
  std::vector<v1::ReshardSpec> clear;  // destinations, with what host memory has
  std::vector<v1::ReshardSpec> fetch;  // destinations, to host memory
};

using DemoRules = google::protobuf::RepeatedPtrField<v1::LayoutRule>;

// What a demo moves, and between which layouts.
struct DemoSides {
  v1::Manifest manifest;
  v1::Manifest received;  // as it is at the destination; empty without GPUs
  Mesh source;            // of the workers' host memory
  Mesh destination;       // as well; axis "replica" counts replicas
  DemoRules source_rules;
  DemoRules destination_rules;
  DemoRules received_rules;  // by which `received` lies there
};

// Rules for what a reshard has brought: of the same layouts, converted already, and scales where
// the elements of their blocks are. `received` is that of the reshard's table.
DemoRules ReceivedRules(const DemoRules& destination_rules, const Manifest& received,
                        const TensorTable& tensors);

// As `sides` says, or between the same workers' GPUs.
absl::StatusOr<DemoSpecs> MakeDemoSpecs(const DemoSides& sides, bool on_gpus);

}  // namespace crossmesh

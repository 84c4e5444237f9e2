#include "client/cli/demo_specs.h"

#include "common/base/status_macros.h"
#include "common/wire/tensor_codec.h"

#include <cstdint>
#include <utility>

#include <absl/strings/string_view.h>

namespace crossmesh {
namespace {

constexpr absl::string_view kReplica = "replica";

absl::StatusOr<Mesh> OnGpus(const Mesh& mesh) {
  std::vector<DeviceId> devices = mesh.devices();
  for (DeviceId& device : devices) ++device.index;
  return Mesh::Create(mesh.axes(), std::move(devices));
}

v1::ReshardSide SideOf(const Mesh& mesh, const DemoRules& rules, const std::string& storage) {
  v1::ReshardSide side;
  *side.mutable_inline_mesh() = ToProto(mesh);
  *side.mutable_rules() = rules;
  side.set_storage(storage);
  return side;
}

// In place: every strategy finds memory in the same state, touched and cleared.
v1::ReshardSpec Spec(const v1::Manifest& manifest, v1::ReshardSide source,
                     v1::ReshardSide destination) {
  v1::ReshardSpec spec;
  *spec.mutable_inline_manifest() = manifest;
  *spec.mutable_source() = std::move(source);
  *spec.mutable_destination() = std::move(destination);
  spec.set_binding(v1::BINDING_MODE_IN_PLACE);
  spec.set_create_destination(true);
  return spec;
}

// Replica by replica: so each device of host memory gets what its own GPU has, or the other way.
absl::Status AddReplicas(const DemoSides& sides, DemoSpecs& specs) {
  const int64_t replicas = sides.destination.axes()[*sides.destination.FindAxis(kReplica)].size;
  for (int64_t replica = 0; replica < replicas; ++replica) {
    const std::vector<std::pair<std::string, int64_t>> selection = {
        {std::string(kReplica), replica}};
    ASSIGN_OR_RETURN(const Mesh host, sides.destination.Select(selection));
    ASSIGN_OR_RETURN(const Mesh gpus, OnGpus(host));
    const auto side = [&](const Mesh& mesh) {
      return SideOf(mesh, sides.received_rules, DemoSpecs::kDestinationStorage);
    };
    specs.clear.push_back(Spec(sides.received, side(host), side(gpus)));
    specs.fetch.push_back(Spec(sides.received, side(gpus), side(host)));
  }
  return absl::OkStatus();
}

}  // namespace

DemoRules ReceivedRules(const DemoRules& destination_rules, const Manifest& received,
                        const TensorTable& tensors) {
  DemoRules rules;
  for (int32_t tensor = tensors.first_scales(); tensor < std::ssize(received.tensors()); ++tensor) {
    const int32_t group = tensors.group_of_tensor()[tensor];
    v1::LayoutRule& rule = *rules.Add();
    rule.set_pattern(received.tensors()[tensor].name);
    rule.set_layout(ToString(tensors.PlacementOf(Side::kDestination, group).layout));
  }
  // The first rule that fits is the tensor's.
  for (const v1::LayoutRule& rule : destination_rules) *rules.Add() = rule;
  for (v1::LayoutRule& rule : rules) rule.clear_dtype();
  return rules;
}

absl::StatusOr<DemoSpecs> MakeDemoSpecs(const DemoSides& sides, bool on_gpus) {
  Mesh source = sides.source;
  Mesh destination = sides.destination;
  DemoSpecs specs;
  if (on_gpus) {
    ASSIGN_OR_RETURN(source, OnGpus(source));
    ASSIGN_OR_RETURN(destination, OnGpus(destination));
    const auto side = [&](const Mesh& mesh) {
      return SideOf(mesh, sides.source_rules, DemoSpecs::kSourceStorage);
    };
    specs.load.push_back(Spec(sides.manifest, side(sides.source), side(source)));
    RETURN_IF_ERROR(AddReplicas(sides, specs));
  }
  specs.move = Spec(sides.manifest, SideOf(source, sides.source_rules, DemoSpecs::kSourceStorage),
                    SideOf(destination, sides.destination_rules, DemoSpecs::kDestinationStorage));
  specs.move.add_replica_axes(std::string(kReplica));
  return specs;
}

}  // namespace crossmesh

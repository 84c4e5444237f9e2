#include "client/cli/spec_flags.h"

#include "client/cli/cli.h"
#include "client/cli/duration_flag.h"
#include "client/cli/options.h"
#include "client/cli/tensor_flags.h"
#include "common/base/error_place.h"
#include "common/base/status_macros.h"
#include "common/mesh/data_type.h"
#include "common/mesh/gpu_host.h"
#include "common/mesh/json_reader.h"
#include "common/mesh/manifest.h"
#include "common/mesh/mesh.h"
#include "common/mesh/shape.h"
#include "common/mesh/topology_file.h"
#include "common/wire/reshard_codec.h"
#include "common/wire/tensor_codec.h"
#include "crossmesh/v1/reshard_service.pb.h"
#include "planner/reshard/strategy.h"

#include <filesystem>
#include <set>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>
#include <nlohmann/json.hpp>

namespace crossmesh {
namespace {

// A request file is the API's JSON: a PlanReshardRequest, an ExecuteReshardRequest, or the
// specification by itself.
absl::StatusOr<v1::ReshardSpec> ReadRequestFile(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  ASSIGN_OR_RETURN(nlohmann::json document, ParseJson(path, text));
  if (document.is_object() && document.contains("spec")) document = document["spec"];
  v1::ReshardSpec spec;
  RETURN_IF_ERROR(FromJson(path, document.dump(), spec));
  return spec;
}

// All hosts of both meshes, which must be given inline, as this preset has them.
absl::StatusOr<Topology> GpuHostsOf(const v1::ReshardSpec& spec, const std::string& preset) {
  std::set<std::string> names;
  for (const v1::ReshardSide* const side : {&spec.source(), &spec.destination()}) {
    if (!side->has_inline_mesh()) {
      return absl::InvalidArgumentError(absl::StrCat("expected meshes as text, found \"",
                                                     side->mesh(),
                                                     "\", whose hosts only a controller knows"));
    }
    ASSIGN_OR_RETURN(const Mesh mesh, FromProto(side->inline_mesh()));
    for (const DeviceId& device : mesh.devices()) names.insert(device.host);
  }
  return GpuHosts(preset, {names.begin(), names.end()});
}

}  // namespace

void SpecFlags::AddSideTo(CLI::App& command, const std::string& name, Side& side) {
  AddOption(command, "--" + name, side.mesh,
            "Mesh, as text ('data=2 on a.0-1') or a registered name");
  AddOption(command, "--" + name + "-rules", side.rules, "File of layout rules for its tensors");
  AddOption(command, "--" + name + "-layout", side.layout, "One layout for all tensors instead");
}

void SpecFlags::AddTo(CLI::App& command) {
  AddTensorsTo(command);
  AddSideTo(command, "source", source_);
  AddSideTo(command, "destination", destination_);
  AddOption(command, "--strategy", strategy_,
            "relay, m2n (NVIDIA's, between GPUs), by default the faster of both; redistribute, by "
            "steps inside one mesh, by default where flags say something of it; or one to compare "
            "with");
  AddOption(command, "--seed", seed_, "Of strategies that draw");
  AddFlag(command, "--no-broadcasts", no_broadcasts_,
          "Relays only, even where GPUs are predicted to broadcast faster");
  AddOption(command, "--device-bytes-max", device_bytes_max_,
            "Most bytes of the operation on a device at any time: its source, its destination, "
            "and the destination's shadow; other storages are not counted");
  AddMovingTo(command);
  AddRedistributionTo(command, "--method");
}

void SpecFlags::AddInsideMeshTo(CLI::App& command) {
  inside_mesh_ = true;
  strategy_ = std::string(StrategyName(Strategy::kRedistribute));
  AddTensorsTo(command);
  AddOption(command, "--shape", shape_, "Of one tensor instead of a manifest, e.g. '[1024, 1024]'");
  AddOption(command, "--dtype", type_, "Of its elements").ShowDefault();
  AddOption(command, "--mesh", source_.mesh,
            "Mesh, as text ('data=2 on a.0-1') or a registered name");
  AddOption(command, "--destination-mesh", destination_.mesh,
            "Its devices in the same order, by other axes, if layouts afterwards have these");
  AddOption(command, "--source", source_.layout, "Layout before");
  AddOption(command, "--source-rules", source_.rules, "File of layout rules instead");
  AddOption(command, "--destination", destination_.layout, "Layout afterwards");
  AddOption(command, "--destination-rules", destination_.rules, "File of layout rules instead");
  AddOption(
      command, "--cap", cap_,
      "Most bytes on a device at any time, of all tensors together: of storages and what lies "
      "between steps; of --shape without storages, what goes into a step, what comes out, "
      "and staging");
  AddMovingTo(command);
  AddRedistributionTo(command, "--baseline");
}

void SpecFlags::AddTensorsTo(CLI::App& command) {
  AddOption(command, "--request", request_, "JSON file of the API request; other flags go over it");
  AddOption(command, "--manifest", manifest_,
            "Manifest file, safetensors file or folder, or a registered name");
}

// Of how bytes move.
void SpecFlags::AddMovingTo(CLI::App& command) {
  AddOption(command, "--replica-axes", replica_axes_, "Destination axes that count replicas, a,b")
      .SplitAt(',');
  AddOption(command, "--chunk-bytes", chunk_bytes_,
            "Most of a chunk, a multiple of 65536 up to 16777216 (default: by the bytes of the "
            "request)");
  AddOption(command, "--nic-share", nic_share_,
            "Share of every NIC that may be used, above 0 to 1 (default 1)");
  AddFlag(command, "--in-place", in_place_,
          "Receive into the destination's only memory (default on GPUs of a described network)");
  AddFlag(command, "--shadow", shadow_,
          "Receive beside the version before, which takes the destination's memory twice (default "
          "elsewhere)");
  AddOption(command, "--topology", topology_, "Network file; without one, rates are assumed");
  AddOption(command, "--gpu-host", gpu_host_,
            "Instead of a network file: what all hosts of the meshes are, h100x8 for example");
}

void SpecFlags::AddExecutionTo(CLI::App& command) {
  AddOption(command, "--source-storage", source_.storage, "The workers' storage that is read");
  AddOption(command, "--destination-storage", destination_.storage, "The storage that is written");
  AddFlag(command, "--create-destination", create_destination_, "Create storages that lack");
  AddFlag(command, "--no-checksums", no_checksums_, "Do not check what arrives");
  AddOption(command, "--deadline", deadline_, "E.g. 90s (default: by the prediction)");
  AddOption(command, "--stall-limit", stall_limit_, "E.g. 5s");
}

void SpecFlags::AddRedistributionTo(CLI::App& command, const std::string& method_flag) {
  AddOption(command, "--source-partial", source_partial_,
            "Axes over which devices hold summands of one value, a,b")
      .SplitAt(',');
  AddOption(command, "--destination-partial", destination_partial_,
            "Those of them over which they still do so afterwards, a,b")
      .SplitAt(',');
  AddOption(command, "--reduction", reduction_, "What is made of summands (default sum)")
      .OneOf({"sum", "mean", "min", "max"});
  AddOption(command, "--reduction-order", reduction_order_,
            "Of sums: fixed, or any, where GPUs may leave it to NCCL (default fixed, or that of a "
            "ring of hosts)")
      .OneOf({"fixed", "any"});
  AddOption(command, "--objective", objective_, "What is to be least (default time)")
      .OneOf({"time", "bytes"});
  AddOption(command, method_flag, method_, "A method of the literature, to compare with")
      .OneOf({"replicate_then_slice", "dtensor_greedy", "one_axis", "normal_form"});
  AddFlag(command, "--no-relay", no_relays_, "Collectives only: no step is point to point");
  AddFlag(command, "--release-source", release_source_,
          "Give the source up: its memory is given back while it is consumed, and it is gone "
          "afterwards; if the operation fails in between, it is DIRTY");
}

void SpecFlags::MirrorMissingSide() {
  if (!request_.empty()) return;
  if (source_.mesh.empty()) {
    source_ = destination_;
  } else if (destination_.mesh.empty()) {
    destination_ = source_;
  }
}

absl::StatusOr<v1::ReshardSpec> SpecFlags::Read() const {
  v1::ReshardSpec spec;
  if (!request_.empty()) {
    ASSIGN_OR_RETURN(spec, ReadRequestFile(request_));
  }
  RETURN_IF_ERROR(ReadManifestTo(spec));
  if (!strategy_.empty()) spec.set_strategy(strategy_);
  ReadRedistributionTo(spec);
  Side source = source_;
  Side destination = destination_;
  // Inside one mesh, which need not be given twice.
  if (StrategyOf(spec) == StrategyName(Strategy::kRedistribute) && request_.empty()) {
    if (source.mesh.empty()) source.mesh = destination.mesh;
    if (destination.mesh.empty()) destination.mesh = source.mesh;
  }
  RETURN_IF_ERROR(ReadSide("source", source, *spec.mutable_source()));
  RETURN_IF_ERROR(ReadSide("destination", destination, *spec.mutable_destination()));
  RETURN_IF_ERROR(ReadPlanningTo(spec));
  RETURN_IF_ERROR(ReadExecutionTo(spec));
  return spec;
}

absl::StatusOr<v1::Manifest> SpecFlags::ReadOneTensor() const {
  if (!manifest_.empty() || !request_.empty()) {
    return absl::InvalidArgumentError(
        "--shape: expected neither --manifest nor --request beside it");
  }
  ASSIGN_OR_RETURN(Shape shape, At("--shape", ParseShape(shape_)));
  ASSIGN_OR_RETURN(const DataType type, At("--dtype", ParseDataType(type_)));
  ASSIGN_OR_RETURN(const Manifest manifest,
                   Manifest::Create({{.name = "tensor", .type = type, .shape = std::move(shape)}}));
  return ToProto(manifest);
}

std::string SpecFlags::MeshFlag(const std::string& side) const {
  if (!inside_mesh_) return absl::StrCat("--", side);
  return side == "source" || destination_.mesh.empty() ? "--mesh" : "--destination-mesh";
}

std::string SpecFlags::LayoutFlag(const std::string& side) const {
  return absl::StrCat("--", side, inside_mesh_ ? "" : "-layout");
}

absl::Status SpecFlags::ReadManifestTo(v1::ReshardSpec& spec) const {
  if (is_one_tensor()) {
    ASSIGN_OR_RETURN(*spec.mutable_inline_manifest(), ReadOneTensor());
    return absl::OkStatus();
  }
  if (manifest_.empty()) {
    if (spec.manifest_source_case() != v1::ReshardSpec::MANIFEST_SOURCE_NOT_SET) {
      return absl::OkStatus();
    }
    return absl::InvalidArgumentError("--manifest: expected a file or a name, found none");
  }
  // What could be either is a file if there is one.
  std::error_code unreachable;
  const bool is_file = std::filesystem::exists(manifest_, unreachable);
  if (!is_file && IsRegisteredName(manifest_)) {
    spec.set_manifest(manifest_);
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(const Manifest manifest, ReadManifest(manifest_));
  *spec.mutable_inline_manifest() = ToProto(manifest);
  return absl::OkStatus();
}

absl::Status SpecFlags::ReadSide(const std::string& name, const Side& side,
                                 v1::ReshardSide& proto) const {
  if (IsRegisteredName(side.mesh)) {
    proto.set_mesh(side.mesh);
  } else if (!side.mesh.empty()) {
    ASSIGN_OR_RETURN(const Mesh mesh, At(MeshFlag(name), ParseMesh(side.mesh)));
    *proto.mutable_inline_mesh() = ToProto(mesh);
  } else if (proto.mesh_source_case() == v1::ReshardSide::MESH_SOURCE_NOT_SET) {
    return absl::InvalidArgumentError(
        absl::StrCat(MeshFlag(name), ": expected a mesh, found none"));
  }
  if (!side.rules.empty() && !side.layout.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--", name, "-rules and ", LayoutFlag(name), ": expected one of them"));
  }
  if (!side.rules.empty()) {
    ASSIGN_OR_RETURN(const std::vector<v1::LayoutRule> rules, ReadRules(side.rules));
    proto.mutable_rules()->Assign(rules.begin(), rules.end());
  } else if (!side.layout.empty()) {
    ASSIGN_OR_RETURN(v1::LayoutRule rule, At(LayoutFlag(name), RuleForAll(side.layout)));
    proto.clear_rules();
    *proto.add_rules() = std::move(rule);
  }
  if (!side.storage.empty()) proto.set_storage(side.storage);
  return absl::OkStatus();
}

absl::Status SpecFlags::ReadPlanningTo(v1::ReshardSpec& spec) const {
  if (!replica_axes_.empty()) {
    spec.mutable_replica_axes()->Assign(replica_axes_.begin(), replica_axes_.end());
  }
  if (!strategy_.empty()) RETURN_IF_ERROR(At("--strategy", ParseStrategy(strategy_)).status());
  if (seed_ != 0) spec.set_seed(seed_);
  if (chunk_bytes_ != 0) spec.set_chunk_bytes(chunk_bytes_);
  if (nic_share_ != 0) spec.set_nic_share(nic_share_);
  if (no_broadcasts_) spec.set_no_broadcasts(true);
  if (in_place_ && shadow_) {
    return absl::InvalidArgumentError("expected --in-place or --shadow, found both");
  }
  if (in_place_) spec.set_binding(v1::BINDING_MODE_IN_PLACE);
  if (shadow_) spec.set_binding(v1::BINDING_MODE_SHADOW);
  if (device_bytes_max_ != 0) spec.set_device_bytes_max(device_bytes_max_);
  if (cap_.has_value() && *cap_ < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("--cap: expected at least 1 byte, found ", *cap_));
  }
  if (cap_.has_value()) spec.set_device_bytes_max(*cap_);
  return ReadNetworkTo(spec);
}

void SpecFlags::ReadRedistributionTo(v1::ReshardSpec& spec) const {
  if (!source_partial_.empty()) {
    spec.mutable_redistribution()->mutable_source_partial()->Assign(source_partial_.begin(),
                                                                    source_partial_.end());
  }
  if (!destination_partial_.empty()) {
    spec.mutable_redistribution()->mutable_destination_partial()->Assign(
        destination_partial_.begin(), destination_partial_.end());
  }
  if (!reduction_.empty()) spec.mutable_redistribution()->set_reduction(reduction_);
  if (!reduction_order_.empty()) {
    spec.mutable_redistribution()->set_reduction_order(reduction_order_);
  }
  if (!objective_.empty()) spec.mutable_redistribution()->set_objective(objective_);
  if (!method_.empty()) spec.mutable_redistribution()->set_method(method_);
  if (no_relays_) spec.mutable_redistribution()->set_no_relays(true);
  if (release_source_) spec.mutable_redistribution()->set_release_source(true);
}

absl::Status SpecFlags::ReadNetworkTo(v1::ReshardSpec& spec) const {
  if (!topology_.empty() && !gpu_host_.empty()) {
    return absl::InvalidArgumentError("--topology and --gpu-host: expected one of them");
  }
  if (!topology_.empty()) {
    ASSIGN_OR_RETURN(const std::string text, ReadFile(topology_));
    ASSIGN_OR_RETURN(const Topology topology,
                     At(absl::StrCat("--topology ", topology_), ParseTopologyFile(text)));
    *spec.mutable_topology() = ToProto(topology);
  }
  if (!gpu_host_.empty()) {
    ASSIGN_OR_RETURN(const Topology topology,
                     At(absl::StrCat("--gpu-host ", gpu_host_), GpuHostsOf(spec, gpu_host_)));
    *spec.mutable_topology() = ToProto(topology);
  }
  return absl::OkStatus();
}

absl::Status SpecFlags::ReadExecutionTo(v1::ReshardSpec& spec) const {
  if (create_destination_) spec.set_create_destination(true);
  if (no_checksums_) spec.set_checksums(false);
  if (!deadline_.empty()) {
    RETURN_IF_ERROR(ReadDuration("deadline", deadline_, *spec.mutable_deadline()));
  }
  if (!stall_limit_.empty()) {
    RETURN_IF_ERROR(ReadDuration("stall-limit", stall_limit_, *spec.mutable_stall_limit()));
  }
  return absl::OkStatus();
}

}  // namespace crossmesh

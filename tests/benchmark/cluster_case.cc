#include "tests/benchmark/cluster_case.h"

#include "common/base/status_macros.h"
#include "common/mesh/layout_rules.h"
#include "common/reshard/reshard_tensors.h"
#include "common/wire/tensor_codec.h"

#include <array>
#include <atomic>
#include <cstdint>
#include <utility>

namespace crossmesh {
namespace {

constexpr std::array kWorkers = {"node-0", "node-1", "node-2", "node-3"};
constexpr char kSource[] = "training";
constexpr char kDestination[] = "serving";

absl::StatusOr<Mesh> MeshOverWorkers(std::vector<Axis> axes) {
  std::vector<DeviceId> devices;
  for (const char* worker : kWorkers) devices.push_back({.host = worker});
  return Mesh::Create(std::move(axes), std::move(devices));
}

v1::LayoutRule Rule(const std::string& pattern, const std::string& layout) {
  v1::LayoutRule rule;
  rule.set_pattern(pattern);
  rule.set_layout(layout);
  return rule;
}

}  // namespace

absl::StatusOr<std::unique_ptr<ClusterCase>> ClusterCase::Create(Options options) {
  std::unique_ptr<ClusterCase> result(new ClusterCase(std::move(options)));
  RETURN_IF_ERROR(result->MakeRequest());
  RETURN_IF_ERROR(result->Start());
  return result;
}

absl::Status ClusterCase::MakeRequest() {
  ASSIGN_OR_RETURN(const Mesh source, MeshOverWorkers({{"fsdp", kWorkers.size()}}));
  ASSIGN_OR_RETURN(const Mesh destination, MeshOverWorkers({{"replica", 2}, {"model", 2}}));
  *spec_.mutable_inline_manifest() = ToProto(options_.manifest);
  *spec_.mutable_source()->mutable_inline_mesh() = ToProto(source);
  *spec_.mutable_source()->add_rules() = Rule("*", "[fsdp, ...] nested_chunk");
  spec_.mutable_source()->set_storage(kSource);
  *spec_.mutable_destination()->mutable_inline_mesh() = ToProto(destination);
  for (const TensorSpec& tensor : options_.manifest.tensors()) {
    if (tensor.shape.rank() < 2) {
      *spec_.mutable_destination()->add_rules() = Rule(tensor.name, "[...]");
    }
  }
  *spec_.mutable_destination()->add_rules() = Rule("*", "[-, model]");
  spec_.mutable_destination()->set_storage(kDestination);
  spec_.add_replica_axes("replica");
  spec_.set_binding(v1::BINDING_MODE_IN_PLACE);
  spec_.set_checksums(options_.checksums);
  ASSIGN_OR_RETURN(const LayoutRules source_rules, FromProto(spec_.source().rules()));
  ASSIGN_OR_RETURN(const LayoutRules destination_rules, FromProto(spec_.destination().rules()));
  ASSIGN_OR_RETURN(TensorTable tensors,
                   BuildReshardTensors(options_.manifest, {source, source_rules},
                                       {destination, destination_rules}, {"replica"}));
  tensors_ = std::make_unique<const TensorTable>(std::move(tensors));
  return absl::OkStatus();
}

absl::Status ClusterCase::Start() {
  ASSIGN_OR_RETURN(
      cluster_, LiveCluster::Start(
                    {.workers = {kWorkers.begin(), kWorkers.end()},
                     .worker_flags = {"--shared-memory", options_.shared_memory ? "on" : "off"}}));
  for (const std::string& worker : cluster_->workers()) {
    ASSIGN_OR_RETURN(Holding source, Open(worker, Side::kSource, kSource));
    std::atomic<int64_t> done_bytes = 0;
    source.tiles.Fill(values_, source.storage.bytes(), done_bytes);
    sources_.push_back(std::move(source));
    ASSIGN_OR_RETURN(Holding destination, Open(worker, Side::kDestination, kDestination));
    destinations_.push_back(std::move(destination));
  }
  return absl::OkStatus();
}

absl::StatusOr<ClusterCase::Holding> ClusterCase::Open(const std::string& worker, Side side,
                                                       const std::string& storage) {
  const DeviceId device{.host = worker};
  StorageTiles tiles(*tensors_, side, *tensors_->FindDevice(device));
  ASSIGN_OR_RETURN(MemoryClient memory, cluster_->Memory(worker));
  ASSIGN_OR_RETURN(MappedStorage mapped, memory.Create(storage, ToString(device), tiles.bytes()));
  return Holding{std::move(tiles), std::move(mapped)};
}

absl::StatusOr<v1::Operation> ClusterCase::Move() {
  v1::ExecuteReshardRequest request;
  *request.mutable_spec() = spec_;
  request.set_request_id(NewRequestId());
  ASSIGN_OR_RETURN(v1::Operation operation,
                   cluster_->client().Execute(request, [](const v1::Operation&) {}));
  RETURN_IF_ERROR(OutcomeOf(operation));
  return operation;
}

absl::Status ClusterCase::Check() const {
  for (const Holding& destination : destinations_) {
    std::atomic<int64_t> done_bytes = 0;
    RETURN_IF_ERROR(destination.tiles.Check(values_, destination.storage.bytes(), done_bytes));
  }
  return absl::OkStatus();
}

}  // namespace crossmesh

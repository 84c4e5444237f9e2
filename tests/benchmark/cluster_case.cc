#include "tests/benchmark/cluster_case.h"

#include "common/base/status_macros.h"

#include <utility>

namespace crossmesh {

absl::StatusOr<std::unique_ptr<ClusterCase>> ClusterCase::Create(const Options& options) {
  auto result = std::make_unique<ClusterCase>();
  ASSIGN_OR_RETURN(result->cluster_,
                   LiveCluster::Start({.workers = {"node-0", "node-1", "node-2", "node-3"},
                                       .worker_flags = {"--shared-memory",
                                                        options.shared_memory ? "on" : "off"}}));
  ReshardOptions reshard = {
      .manifest = options.manifest,
      .source = "fsdp=4 on node-0.0,node-1.0,node-2.0,node-3.0",
      .source_layout = "[fsdp, ...] nested_chunk",
      .destination = "replica=2,model=2 on node-0.0,node-1.0,node-2.0,node-3.0",
      .destination_layout = "[-, model]",
      .binding = v1::BINDING_MODE_IN_PLACE};
  for (const TensorSpec& tensor : options.manifest.tensors()) {
    if (tensor.shape.rank() < 2) reshard.whole_tensors.push_back(tensor.name);
  }
  ASSIGN_OR_RETURN(result->reshard_, ReshardCase::Create(reshard, *result->cluster_));
  result->reshard_->spec().set_checksums(options.checksums);
  return result;
}

absl::StatusOr<v1::Operation> ClusterCase::Move() {
  v1::ExecuteReshardRequest request;
  *request.mutable_spec() = reshard_->spec();
  request.set_request_id(NewRequestId());
  ASSIGN_OR_RETURN(v1::Operation operation,
                   cluster_->client().Execute(request, [](const v1::Operation&) {}));
  RETURN_IF_ERROR(OutcomeOf(operation));
  return operation;
}

}  // namespace crossmesh

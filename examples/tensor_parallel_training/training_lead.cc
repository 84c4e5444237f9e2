#include "examples/tensor_parallel_training/training_lead.h"

#include "client/client.h"
#include "common/base/status_macros.h"
#include "common/wire/tensor_codec.h"
#include "examples/tensor_parallel_training/state_memory.h"
#include "planner/layers/layer_program_codec.h"
#include "planner/parallelism/programs/grid_program.h"

#include <utility>

#include <absl/strings/str_cat.h>

namespace crossmesh::grid_training {

std::string StorageBefore(size_t phase) { return absl::StrCat("before-", phase); }
std::string StorageAfter(size_t phase) { return absl::StrCat("after-", phase); }

absl::StatusOr<v1::StartPipelineRequest> RunOf(const TrainingPhase& phase,
                                               const TrainingSettings& settings,
                                               std::span<const DeviceId> devices,
                                               int64_t iterations) {
  ASSIGN_OR_RETURN(const GridProgramRequest request, RequestOf(phase, settings, devices));
  ASSIGN_OR_RETURN(const LayerProgram program, MakeGridProgram(request));
  v1::StartPipelineRequest run;
  *run.mutable_inline_layers() = ToProto(program);
  run.mutable_inline_layers()->set_name("grid");
  run.set_request_id(NewRequestId());
  run.set_iterations(iterations);
  return run;
}

absl::StatusOr<v1::ReshardSpec> MoveOf(const TrainingSettings& settings,
                                       const v1::ReshardSide& from, const v1::ReshardSide& to) {
  ASSIGN_OR_RETURN(const Manifest manifest, ManifestOf(settings));
  v1::ReshardSpec spec;
  *spec.mutable_inline_manifest() = ToProto(manifest);
  *spec.mutable_source() = from;
  *spec.mutable_destination() = to;
  spec.set_binding(v1::BINDING_MODE_IN_PLACE);
  spec.set_create_destination(true);
  return spec;
}

}  // namespace crossmesh::grid_training

#pragma once

#include "worker/pipeline/worker_program.h"

#include <memory>

#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>

namespace crossmesh {

// The program in `bytes`, a serialized v1::PipelineProgram, ready to run. It takes of the memory
// for as long as it lives: for its ops, its messages and its parts. `name` is for messages.
// InvalidArgument: bytes that are none, and what FromProto refuses; ResourceExhausted: there is too
// little, with the figures, before it is spent.
absl::StatusOr<std::shared_ptr<const WorkerProgram>> AdmitProgram(absl::string_view name,
                                                                  absl::string_view bytes,
                                                                  MemoryBudget& memory);
// The same of a v1::LayerProgram.
absl::StatusOr<std::shared_ptr<const WorkerProgram>> AdmitLayerProgram(absl::string_view name,
                                                                       absl::string_view bytes,
                                                                       MemoryBudget& memory);

}  // namespace crossmesh

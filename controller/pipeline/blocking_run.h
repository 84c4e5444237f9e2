#pragma once

#include "controller/pipeline/run.h"

#include <absl/status/statusor.h>

namespace crossmesh {

// RunPipeline under TransferModel::kBlocking, but for the figures of the whole.
absl::StatusOr<PipelineRun> RunBlocking(const OpTable& ops);

}  // namespace crossmesh

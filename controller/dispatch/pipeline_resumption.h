// What is stored of a run of a pipeline for the controller that may have to take it up.

#pragma once

#include "common/mesh/device.h"
#include "controller/operation/pipeline_machine.h"
#include "crossmesh/stored/v1/pipeline.pb.h"

#include <cstdint>
#include <string>
#include <utility>

#include <absl/container/btree_map.h>
#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>

namespace crossmesh {

// By device, the process that computes there: its worker, and which start of that.
using PipelineProcesses = absl::btree_map<DeviceId, std::pair<std::string, uint64_t>>;

void SetProcesses(const PipelineProcesses& processes, stored::v1::PipelineProgress& progress);

// No bytes: none was recorded. DataLoss, naming the run: they do not parse, or contradict
// themselves.
absl::StatusOr<stored::v1::PipelineProgress> ParseProgress(absl::string_view run_id,
                                                           absl::string_view bytes);

// Of one that ParseProgress has checked.
PipelineProgress IterationsOf(const stored::v1::PipelineProgress& progress);
PipelineProcesses ProcessesOf(const stored::v1::PipelineProgress& progress);

}  // namespace crossmesh

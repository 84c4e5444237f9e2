#include "controller/dispatch/pipeline_resumption.h"

#include "common/mesh/mesh.h"

#include <algorithm>
#include <vector>

#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

using Progress = stored::v1::PipelineProgress;

bool AgreesWithItself(const Progress& progress) {
  if (progress.has_complete_iteration() &&
      (progress.complete_iteration() < 0 || !progress.has_begun_iteration())) {
    return false;
  }
  return progress.begun_iteration() >= progress.complete_iteration() &&
         progress.failed_iterations() >= 0 &&
         std::ranges::all_of(progress.processes(), [](const Progress::Process& process) {
           return ParseDevices(process.devices()).ok();
         });
}

}  // namespace

void SetProcesses(const PipelineProcesses& processes, Progress& progress) {
  absl::btree_map<std::pair<std::string, uint64_t>, std::vector<DeviceId>> owned;
  for (const auto& [device, process] : processes) owned[process].push_back(device);
  progress.clear_processes();
  for (const auto& [process, devices] : owned) {
    Progress::Process& entry = *progress.add_processes();
    entry.set_worker(process.first);
    entry.set_incarnation(process.second);
    entry.set_devices(DevicesToString(devices));
  }
}

absl::StatusOr<Progress> ParseProgress(absl::string_view run_id, absl::string_view bytes) {
  Progress progress;
  if (progress.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())) &&
      AgreesWithItself(progress)) {
    return progress;
  }
  return absl::DataLossError(absl::StrCat("stored progress of run ", run_id,
                                          ": expected one that fits together, found ", bytes.size(),
                                          " bytes of something else"));
}

PipelineProgress IterationsOf(const Progress& progress) {
  PipelineProgress iterations;
  if (progress.has_complete_iteration()) iterations.complete = progress.complete_iteration();
  if (progress.has_begun_iteration()) iterations.begun = progress.begun_iteration();
  return iterations;
}

PipelineProcesses ProcessesOf(const Progress& progress) {
  PipelineProcesses processes;
  for (const Progress::Process& process : progress.processes()) {
    const std::vector<DeviceId> devices = *ParseDevices(process.devices());
    for (const DeviceId& device : devices) {
      processes[device] = {process.worker(), process.incarnation()};
    }
  }
  return processes;
}

}  // namespace crossmesh

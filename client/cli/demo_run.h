#pragma once

#include "client/cli/demo_cluster.h"
#include "client/cli/demo_specs.h"
#include "client/cli/demo_tiles.h"
#include "client/cli/demo_values.h"
#include "client/cli/progress.h"
#include "client/memory/memory_client.h"
#include "common/base/clock.h"
#include "common/plan/tensor_table.h"
#include "crossmesh/v1/operation_service.pb.h"
#include "crossmesh/v1/reshard.pb.h"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <absl/functional/function_ref.h>
#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>

namespace crossmesh {

// What one strategy came to.
struct DemoResult {
  v1::PlanSummary plan;
  v1::OperationReport report;
};

// Fills the sources of a reshard on a demo cluster, runs it by one strategy after the other, and
// checks what arrived. Every worker has one source and one destination storage in host memory,
// mapped here; those of GPUs are filled from there, and brought back to be checked.
// Thread-compatible; keeps references to its arguments.
class DemoRun {
 public:
  struct Options {
    DemoSpecs specs;  // the strategy is filled in
    Progress::Form progress = Progress::Form::kNone;
    bool verify = true;
  };
  // `tensors`: of the movement between devices in host memory.
  DemoRun(Options options, const TensorTable& tensors, const DemoValues& values,
          DemoCluster& cluster);

  // Creates all storages and fills the sources.
  absl::Status Prepare();
  // Clears the destinations, plans, moves and checks; `label` names the run in progress. The error
  // of the operation that failed, or DataLoss for the first wrong element.
  absl::StatusOr<DemoResult> Run(const std::string& strategy, const std::string& label);
  // Writes each destination slot's tensors, as the last run left them, into a folder that is
  // created.
  absl::Status Save(const std::string& folder);

 private:
  // A device's part of one side, with its memory.
  struct Holding {
    std::string device;
    DemoTiles tiles;
    MappedStorage storage;
  };

  absl::Status OpenStorages(const DemoCluster::Worker& worker);
  using Work = absl::FunctionRef<absl::Status(const Holding&, std::atomic<int64_t>& done_bytes)>;
  // Does it for all holdings side by side, with progress; the first error.
  absl::Status OnEach(absl::string_view label, std::span<const Holding> holdings, Work work);
  absl::StatusOr<v1::Operation> Move(const std::string& label);
  // Between host memory and GPUs; nothing without these.
  absl::Status Carry(const std::vector<v1::ReshardSpec>& specs, const std::string& label);
  absl::StatusOr<v1::Operation> Execute(const v1::ReshardSpec& spec, Progress& progress);

  Options options_;
  const TensorTable& tensors_;
  const DemoValues& values_;
  const ReceivedValues received_;
  DemoCluster& cluster_;
  const RealClock clock_;
  std::vector<Holding> sources_;
  std::vector<Holding> destinations_;
};

}  // namespace crossmesh

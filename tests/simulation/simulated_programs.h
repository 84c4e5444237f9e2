#pragma once

#include "crossmesh/v1/pipeline_execution_service.pb.h"
#include "tests/simulation/simulated_call.h"
#include "tests/simulation/simulated_node.h"
#include "tests/simulation/simulated_run_history.h"
#include "worker/pipeline/pipeline_loop.h"
#include "worker/pipeline/program_host.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include <absl/status/statusor.h>

namespace crossmesh {

class TaskTable;

// The programs of a worker's process, and what computes in it: every op takes its time, fills its
// outputs with what no other message has, and finds that in its inputs.
class SimulatedPrograms {
 public:
  struct Ports {
    SimulatedNode& node;
    EventLoop& control;
    EventLoop& data;
    PartReplayer& replayer;
    MemoryBudget& memory;
    TaskTable& tasks;
    SimulatedRunHistory& history;
  };
  SimulatedPrograms(const Ports& ports, std::vector<DeviceId> devices);
  ~SimulatedPrograms();

  std::shared_ptr<ServedProgram> Accept(
      const std::shared_ptr<SimulatedStream>& stream,
      const std::shared_ptr<SimulatedCallClient<v1::RunProgramResponse>>& client);
  // Begins what there is to compute; false: there is nothing.
  bool Compute();
  bool is_idle() const { return computing_.empty(); }

 private:
  struct Computing {
    std::unique_ptr<PipelineLoop> loop;
    SimulatedRunHistory::Computer computer;  // which run it is only an op tells
    std::optional<int64_t> complete;         // of which it was told before
    bool is_busy = false;
    bool is_over = false;
  };

  bool TakeStep(const std::shared_ptr<Computing>& computing);
  void Begin(const std::shared_ptr<Computing>& computing, const PipelineOp& op);

  const Ports ports_;
  ProgramHost host_;
  std::vector<std::shared_ptr<Computing>> computing_;
  // The process was told that state is lost. One start of a run tells it, and the next one, which
  // may be the first that comes as far as an op, does not again.
  bool knows_loss_ = false;
};

}  // namespace crossmesh

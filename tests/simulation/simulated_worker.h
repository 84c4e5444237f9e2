#pragma once

#include "crossmesh/v1/execution_service.pb.h"
#include "crossmesh/v1/pipeline_execution_service.pb.h"
#include "tests/simulation/sample_reshards.h"
#include "tests/simulation/simulated_call.h"
#include "tests/simulation/simulated_history.h"
#include "tests/simulation/simulated_network.h"
#include "tests/simulation/simulated_transport.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <absl/status/status.h>
#include <absl/time/time.h>

namespace crossmesh {

class ExecuteCall;
class ServedProgram;
class SessionAgent;
class SimulatedController;
class SimulatedRunHistory;

// A worker: the real task table, calls, programs, leases, storages and executor, on a simulated
// node.
class SimulatedWorker {
 public:
  struct Ports {
    SimulatedNode& node;
    SimulatedNetwork& network;
    SimulatedFabric& fabric;
    const std::vector<SampleReshard>& reshards;
    const std::vector<int64_t>& versions;  // of the sources, now
    SimulatedHistory& history;
    SimulatedRunHistory& runs;
  };

  SimulatedWorker(const Ports& ports, std::string host);
  ~SimulatedWorker();

  // Before the first Start.
  void Meet(std::vector<SimulatedController*> controllers) {
    controllers_ = std::move(controllers);
  }

  SimulatedNode& node() const { return ports_.node; }
  const std::string& name() const { return ports_.node.name(); }
  std::string address() const { return name() + ":7400"; }

  void Start();
  void Kill();
  // The user of the source writes its present version.
  void FillSource(int reshard);

  // One call, Execute or RunProgram, in this process; its end is the stream's side 1.
  std::shared_ptr<ExecuteCall> Accept(
      const std::shared_ptr<SimulatedStream>& stream,
      const std::shared_ptr<SimulatedCallClient<v1::ExecuteResponse>>& client);
  std::shared_ptr<ServedProgram> Accept(
      const std::shared_ptr<SimulatedStream>& stream,
      const std::shared_ptr<SimulatedCallClient<v1::RunProgramResponse>>& client);

  // A message of a call; `epoch` is of its controller.
  void OnRequest(const std::shared_ptr<SimulatedStream>& stream,
                 const std::shared_ptr<ExecuteCall>& call, const v1::ExecuteRequest& request,
                 uint64_t epoch);
  void OnRequest(const std::shared_ptr<SimulatedStream>& stream,
                 const std::shared_ptr<ServedProgram>& call, const v1::RunProgramRequest& request,
                 uint64_t epoch);
  // Called, once, before it obeys the next order to commit, which it does after that. Null: not.
  void OnNextCommitOrder(std::function<void()> on_order) { on_commit_order_ = std::move(on_order); }

  // What should not be there when all has ended; empty: nothing.
  std::string Leftovers();

 private:
  struct Process;
  class Runner;

  void MakeStorages();
  void OnStepped();
  void LookAtDestinations();
  void ScheduleWake();

  std::unique_ptr<SessionAgent> MakeAgent();
  // The process ends, as another one has its name, and is started again.
  void OnRefused(const absl::Status& why);

  const Ports ports_;
  const std::string host_;
  std::vector<SimulatedController*> controllers_;
  std::function<void()> on_commit_order_;
  uint64_t fence_ = 0;  // as the file has it
  std::unique_ptr<Process> process_;
};

}  // namespace crossmesh

#pragma once

#include "controller/dispatch/worker_gateway.h"
#include "tests/simulation/simulated_network.h"

#include <functional>
#include <memory>
#include <utility>
#include <vector>

namespace crossmesh {

class SimulatedWorker;

// Calls of a controller to workers over the simulated network. Breaks them off when it goes away.
class SimulatedTaskGateway final : public TaskGateway {
 public:
  SimulatedTaskGateway(SimulatedNode& node, SimulatedNetwork& network,
                       const std::vector<SimulatedWorker*>& workers)
      : node_(node), network_(network), workers_(workers) {}
  ~SimulatedTaskGateway() override;
  // Breaks all calls off; nobody hears of it.
  void Stop();

  std::unique_ptr<WorkerCall<v1::ExecuteRequest>> Open(
      WorkerCallStart<v1::ExecuteRequest> start,
      WorkerCallListener<v1::ExecuteResponse> listener) override;

 private:
  SimulatedNode& node_;
  SimulatedNetwork& network_;
  const std::vector<SimulatedWorker*>& workers_;
  std::vector<std::pair<std::weak_ptr<void>, std::function<void()>>> break_off_;
};

}  // namespace crossmesh

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
template <typename Request, typename Response>
class SimulatedGateway final : public WorkerGateway<Request, Response> {
 public:
  // `on_open`, if there is one, is told of each call.
  SimulatedGateway(SimulatedNode& node, SimulatedNetwork& network,
                   const std::vector<SimulatedWorker*>& workers,
                   std::function<void(const Request& first)> on_open = nullptr)
      : node_(node), network_(network), workers_(workers), on_open_(std::move(on_open)) {}
  ~SimulatedGateway() override { Stop(); }
  // Breaks all calls off; nobody hears of it.
  void Stop();

  std::unique_ptr<WorkerCall<Request>> Open(WorkerCallStart<Request> start,
                                            WorkerCallListener<Response> listener) override;

 private:
  class Call;       // the controller's end of one
  class OwnersEnd;  // what its owner holds

  SimulatedNode& node_;
  SimulatedNetwork& network_;
  const std::vector<SimulatedWorker*>& workers_;
  const std::function<void(const Request& first)> on_open_;
  std::vector<std::pair<std::weak_ptr<void>, std::function<void()>>> break_off_;
};

using SimulatedTaskGateway = SimulatedGateway<v1::ExecuteRequest, v1::ExecuteResponse>;
using SimulatedProgramGateway = SimulatedGateway<v1::RunProgramRequest, v1::RunProgramResponse>;

extern template class SimulatedGateway<v1::ExecuteRequest, v1::ExecuteResponse>;
extern template class SimulatedGateway<v1::RunProgramRequest, v1::RunProgramResponse>;

}  // namespace crossmesh

#pragma once

#include "crossmesh/v1/operation_service.pb.h"
#include "tests/simulation/simulated_controller.h"

#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <absl/time/time.h>

namespace crossmesh {

class SimulatedWorker;

// A client that asks for one reshard again and again, with the next version of the source each
// time. It repeats a request until a controller says how its operation has ended; sometimes it asks
// two at once, cancels, or asks later how an operation has ended.
class SimulatedClient {
 public:
  struct Habits {
    int64_t operations = std::numeric_limits<int64_t>::max();
    absl::Duration pause_max = absl::Seconds(20);  // before each
    double cancels = 0.15;
    absl::Duration cancels_within = absl::Seconds(3);
  };
  struct Ports {
    SimulatedNode& node;
    SimulatedNetwork& network;
    const std::vector<SimulatedWorker*>& workers;
    std::vector<int64_t>& versions;  // of the sources, now
    SimulatedHistory& history;
    std::vector<SimulatedController*> controllers;
  };

  SimulatedClient(Ports ports, int reshard, const Habits& habits)
      : ports_(std::move(ports)), habits_(habits), reshard_(reshard) {}

  void Start();
  // What was asked for is followed to its end; nothing new is asked for.
  void Finish() { finishing_ = true; }
  // All operations have ended.
  bool is_done() const { return asked_ == habits_.operations && ended_; }
  // Asks all controllers how the last operation has ended.
  void LookAgain();

 private:
  using Call = std::function<void(SimulatedController&, const std::shared_ptr<SimulatedStream>&)>;

  SimulatedWorld& world() { return ports_.node.world(); }
  void Next();
  void Ask(int controller);
  void OnOperation(int64_t version, const v1::Operation& operation);
  void Cancel();
  void LookAgain(int64_t version, const std::string& id);
  std::shared_ptr<SimulatedStream> Open(int controller, const char* label, Call call);

  const Ports ports_;
  const Habits habits_;
  const int reshard_;
  int64_t asked_ = 0;  // operations
  SimulatedController::Request request_;
  std::string operation_;  // of the request; empty: not known
  bool ended_ = true;
  bool finishing_ = false;
  int controller_ = 0;
};

}  // namespace crossmesh

#pragma once

#include "tests/simulation/simulated_controller.h"

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <absl/time/time.h>

namespace crossmesh {

// A client that changes metadata and follows their changes: what it has put together of them must
// be what there is. Sometimes it counts twice at a time.
class SimulatedMetadataClient {
 public:
  struct Ports {
    SimulatedNode& node;
    SimulatedNetwork& network;
    SimulatedHistory& history;
    std::vector<SimulatedController*> controllers;
  };

  // Begins something after a pause of up to `pause_max`, again and again.
  SimulatedMetadataClient(Ports ports, absl::Duration pause_max)
      : ports_(std::move(ports)), pause_max_(pause_max) {}
  void Start();
  // Counts at all controllers.
  void LookAgain();

 private:
  SimulatedController& NextController();
  void Count();
  void Follow();
  void OnChanges(const SimulatedController::Changes& changes);

  const Ports ports_;
  const absl::Duration pause_max_;
  size_t controller_ = 0;
  std::map<std::string, std::string> objects_;
  int64_t revision_ = 0;  // of which they are
};

}  // namespace crossmesh

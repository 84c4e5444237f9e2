#pragma once

#include "tests/simulation/simulated_controller.h"

#include <cstdint>
#include <map>
#include <string>
#include <vector>

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

  explicit SimulatedMetadataClient(Ports ports) : ports_(std::move(ports)) {}
  void Start();

 private:
  SimulatedController& NextController();
  void Count();
  void Follow();
  void OnChanges(const SimulatedController::Changes& changes);

  const Ports ports_;
  size_t controller_ = 0;
  std::map<std::string, std::string> objects_;
  int64_t revision_ = 0;  // of which they are
};

}  // namespace crossmesh

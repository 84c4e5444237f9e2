#pragma once

#include "tests/simulation/simulated_controller.h"

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace crossmesh {

// A client that writes an object, writes it again and deletes it, one after the other. It repeats
// each until a controller says that it is done, and looks then: what it finds must be that.
class SimulatedObjectClient {
 public:
  struct Ports {
    SimulatedNode& node;
    SimulatedNetwork& network;
    SimulatedHistory& history;
    std::vector<SimulatedController*> controllers;
  };

  explicit SimulatedObjectClient(Ports ports) : ports_(std::move(ports)) {}

  void Start();
  // All is done and was found.
  bool is_done() const;
  // Looks once more at what is there, at all controllers.
  void LookAgain();

 private:
  using Call = std::function<void(SimulatedController&, const std::shared_ptr<SimulatedStream>&)>;

  // When the call ends and the step is not over, another controller is asked, by `again`.
  void Open(const char* label, Call call, std::function<void()> again);
  void Change();
  void Look();
  void OnValue(size_t step, const std::optional<std::string>& value);

  const Ports ports_;
  size_t step_ = 0;  // two for each change: it is made, and looked at
  size_t controller_ = 0;
};

}  // namespace crossmesh

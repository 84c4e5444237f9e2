#pragma once

#include "tests/simulation/simulated_controller.h"
#include "tests/simulation/simulated_pipelines.h"
#include "tests/simulation/simulated_run_history.h"

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace crossmesh {

// A client that has one pipeline after the other run, each of its own. It repeats a request until a
// controller says how the run has ended; sometimes it stops it.
class SimulatedPipelineClient {
 public:
  struct Ports {
    SimulatedNode& node;
    SimulatedNetwork& network;
    SimulatedRunHistory& history;
    std::vector<SimulatedController*> controllers;
  };

  explicit SimulatedPipelineClient(Ports ports) : ports_(std::move(ports)) {}

  void Start();
  // What was asked for is followed to its end; nothing new is asked for.
  void Finish() { finishing_ = true; }

 private:
  using Call = std::function<void(SimulatedPipelines&, const std::shared_ptr<SimulatedStream>&)>;

  SimulatedWorld& world() { return ports_.node.world(); }
  void Next();
  void Ask();
  void OnRun(const std::string& run, const v1::PipelineRun& told);
  void Stop();
  std::shared_ptr<SimulatedStream> Open(const char* label, Call call);

  const Ports ports_;
  std::string run_;  // that is asked for
  int number_ = 0;
  int64_t iterations_ = 0;
  std::string id_;  // of the run; empty: not known
  bool ended_ = true;
  bool finishing_ = false;
  int controller_ = 0;
};

}  // namespace crossmesh

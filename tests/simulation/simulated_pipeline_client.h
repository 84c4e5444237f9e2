#pragma once

#include "tests/simulation/simulated_controller.h"
#include "tests/simulation/simulated_pipelines.h"
#include "tests/simulation/simulated_run_history.h"

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <absl/time/time.h>

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

  struct Habits {
    int64_t runs = std::numeric_limits<int64_t>::max();
    int iterations_max = 15;
    absl::Duration pause_max = absl::Seconds(20);  // before each
    double stops = 0.15;
  };

  SimulatedPipelineClient(Ports ports, const Habits& habits)
      : ports_(std::move(ports)), habits_(habits) {}

  void Start();
  // What was asked for is followed to its end; nothing new is asked for.
  void Finish() { finishing_ = true; }
  // All runs have ended.
  bool is_done() const { return number_ == habits_.runs && ended_; }
  // Asks all controllers for the last run once more, which has ended.
  void LookAgain();

 private:
  using Call = std::function<void(SimulatedPipelines&, const std::shared_ptr<SimulatedStream>&)>;

  SimulatedWorld& world() { return ports_.node.world(); }
  void Next();
  void Ask();
  void OnRun(const std::string& run, const v1::PipelineRun& told);
  void Stop();
  std::shared_ptr<SimulatedStream> Open(const char* label, Call call);

  const Ports ports_;
  const Habits habits_;
  std::string run_;  // that is asked for
  int64_t number_ = 0;
  int64_t iterations_ = 0;
  std::string id_;  // of the run; empty: not known
  bool ended_ = true;
  bool finishing_ = false;
  int controller_ = 0;
};

}  // namespace crossmesh

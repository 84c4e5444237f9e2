#pragma once

#include "common/mesh/topology.h"
#include "common/plan/plan.h"
#include "planner/network/simulator.h"

#include <string>

#include <absl/status/status.h>

namespace CLI {
class App;
}  // namespace CLI

namespace crossmesh {

// The flags --svg and --trace: files to see a simulated run in.
class SimulationFiles {
 public:
  void AddTo(CLI::App& command);
  bool wanted() const { return !svg_.empty() || !trace_.empty(); }

  // Writes those asked for. The run must have kept its transfers. As WriteFile and DrawPicture.
  absl::Status Write(const Plan& plan, const Topology& topology,
                     const SimulatedTimeline& run) const;

 private:
  std::string svg_;
  std::string trace_;
};

}  // namespace crossmesh

#include "client/cli/simulation_files.h"

#include "client/cli/cli.h"
#include "client/cli/options.h"
#include "client/cli/picture.h"
#include "client/cli/simulation_report.h"
#include "client/planning/plan_picture.h"
#include "common/base/status_macros.h"

namespace crossmesh {

void SimulationFiles::AddTo(CLI::App& command) {
  AddOption(command, "--svg", svg_,
            "Draw hosts, routes and the run over time to this file: .svg, .png or .pdf");
  AddOption(command, "--trace", trace_, "Write the run in Chrome's trace format to this file");
}

absl::Status SimulationFiles::Write(const Plan& plan, const Topology& topology,
                                    const SimulatedTimeline& run) const {
  if (!svg_.empty()) {
    RETURN_IF_ERROR(DrawPicture(PlanPicture(plan, topology, run), svg_));
  }
  if (trace_.empty()) return absl::OkStatus();
  return WriteFile(trace_, SimulationTrace(plan, run).dump() + "\n");
}

}  // namespace crossmesh

#include "client/cli/grid_by_layer.h"

#include "client/cli/grid_flags.h"
#include "client/cli/layer_exposures_report.h"
#include "client/cli/program_of_grid.h"
#include "common/base/format.h"
#include "common/base/status_macros.h"
#include "planner/layers/planned_layers.h"

#include <utility>

#include <absl/strings/str_cat.h>
#include <nlohmann/json.hpp>

namespace crossmesh {

absl::Status AddByLayer(const GridFlags& flags, const GridOfRequest& of, nlohmann::json& document,
                        std::string& text) {
  const GridRequest& request = of.request;
  ASSIGN_OR_RETURN(const DescribedDevices described, flags.ReadDescribedDevices());
  ASSIGN_OR_RETURN(const WindowedGrid program,
                   PlanProgramOfGrid(request, of.grid, described,
                                     {request.step.training().overlaps, request.chooses_scatters}));
  const v1::LayerRunSummary run = program.planned->Summary().layers();
  document["program_seconds"] = program.planned->run.seconds;
  document["pending_scatters"] = program.pending_scatters;
  document["layers"] = LayerExposuresDocument(run);
  absl::StrAppend(&text, "\n", LayerExposuresText(run),
                  "\nas a program: ", FormatSeconds(program.planned->run.seconds),
                  "\npending scatters: ", program.pending_scatters, " of each matrix, ");
  if (!request.chooses_scatters) {
    absl::StrAppend(&text, "given\n");
    return absl::OkStatus();
  }
  document["pending_scatters_max"] = program.pending_scatters_max;
  document["seconds_of_max"] = program.seconds_of_max;
  absl::StrAppend(&text, "the fewest with which a step takes no longer than with ",
                  program.pending_scatters_max, ", the most that there are and have memory: ",
                  FormatSeconds(program.seconds_of_max), "\n");
  return absl::OkStatus();
}

}  // namespace crossmesh

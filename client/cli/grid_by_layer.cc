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
  ASSIGN_OR_RETURN(LayerProgram program,
                   ProgramOfGrid(request, of.grid, described.devices,
                                 {request.step.training().overlaps, request.pending_scatters}));
  ASSIGN_OR_RETURN(const auto planned, PlanLayers(std::move(program), described.topology));
  const v1::LayerRunSummary run = planned->Summary().layers();
  document["program_seconds"] = planned->run.seconds;
  document["layers"] = LayerExposuresDocument(run);
  absl::StrAppend(&text, "\n", LayerExposuresText(run),
                  "\nas a program: ", FormatSeconds(planned->run.seconds), "\n");
  return absl::OkStatus();
}

}  // namespace crossmesh

#include "client/cli/grid_draw_command.h"

#include "client/cli/cli.h"
#include "client/cli/grid_flags.h"
#include "client/cli/layers_picture.h"
#include "client/cli/options.h"
#include "client/cli/picture.h"
#include "client/cli/program_of_grid.h"
#include "common/base/status_macros.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>
#include <nlohmann/json.hpp>

namespace crossmesh {
namespace {

struct GridDrawFlags {
  GridFlags grid;
  std::vector<std::string> grids;
  std::string svg = "grid.svg";
  bool without_overlaps = false;
};

absl::Status DrawGrids(Cli& cli, const GridDrawFlags& flags) {
  ASSIGN_OR_RETURN(const DescribedDevices described, flags.grid.ReadDescribedDevices());
  ASSIGN_OR_RETURN(const GridRequest request, flags.grid.Read());
  const Overlaps& overlaps = request.step.training().overlaps;
  std::vector<std::pair<absl::string_view, Overlaps>> forms = {{"", overlaps}};
  if (flags.without_overlaps && overlaps != kNoOverlaps) {
    forms = {{", nothing overlaps", kNoOverlaps}, {"", overlaps}};
  }
  std::vector<DrawnLayers> drawn;
  for (const std::string& text : flags.grids) {
    for (const auto& [name, form] : forms) {
      ASSIGN_OR_RETURN(WindowedGrid program, PlanProgramOfGrid(request, text, described,
                                                               {form, request.chooses_scatters}));
      drawn.push_back({.title = absl::StrCat(text, name), .planned = std::move(program.planned)});
    }
  }
  RETURN_IF_ERROR(DrawPicture(LayersPicture(drawn), flags.svg));
  return cli.Answer(nlohmann::json{{"file", flags.svg}},
                    absl::StrCat("Drawn to ", flags.svg, "\n"));
}

}  // namespace

void AddGridDrawCommand(Cli& cli, CLI::App& group) {
  CLI::App& command = cli.AddCommand(
      group, "draw", "Draws predicted steps: what is computed, and what moves beside it",
      "  crossmesh grid draw r=2,z=4 --model config.json --batch 64 --sequence 2048 "
      "--devices a.0,b.0,c.0,d.0,e.0,f.0,g.0,h.0 --topology network.json --without-overlaps\n");
  const auto flags = std::make_shared<GridDrawFlags>();
  AddOption(command, "grid", flags->grids,
            "Sizes of axes, e.g. r=4,z=8; with others of some layers, r=4,z=8+z=32@mlp")
      .Required();
  flags->grid.AddTo(command);
  AddFlag(command, "--without-overlaps", flags->without_overlaps,
          "Draws each also as it is when nothing overlaps");
  AddOption(command, "--svg", flags->svg, "File: .svg, .png or .pdf").ShowDefault();
  cli.Run(command, [&cli, flags] { return DrawGrids(cli, *flags); });
}

}  // namespace crossmesh

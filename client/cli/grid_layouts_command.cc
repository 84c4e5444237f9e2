#include "client/cli/grid_layouts_command.h"

#include "client/cli/cli.h"
#include "client/cli/grid_flags.h"
#include "client/cli/options.h"
#include "common/base/status_macros.h"
#include "common/mesh/mesh.h"
#include "planner/parallelism/layouts/grid_layouts.h"
#include "planner/parallelism/training.h"

#include <memory>
#include <string>
#include <vector>

#include <absl/strings/str_cat.h>
#include <nlohmann/json.hpp>

namespace crossmesh {
namespace {

struct LayoutsFlags {
  GridFlags model;
  std::string grid;
  std::string devices;
  std::string family;
  std::string vectors = "replicated";
};

absl::Status ShowLayouts(Cli& cli, const LayoutsFlags& flags) {
  ASSIGN_OR_RETURN(const Transformer model, flags.model.ReadModel());
  ASSIGN_OR_RETURN(const Grid grid, ParseGrid(flags.grid));
  ASSIGN_OR_RETURN(const WeightFamily family, ParseWeightFamily(flags.family));
  ASSIGN_OR_RETURN(const std::vector<DeviceId> devices, ParseDevices(flags.devices));
  ASSIGN_OR_RETURN(const Mesh mesh, WeightMesh(grid, devices));
  ASSIGN_OR_RETURN(const VectorForm vectors, ParseVectorForm(flags.vectors));
  ASSIGN_OR_RETURN(const std::string rules, RulesOfGrid(model, grid, family, vectors));
  const std::string mesh_text = ToString(mesh);
  return cli.Answer(
      {{"mesh", mesh_text}, {"rules", rules}},
      absl::StrCat("# parameters of ", model.name, " on ", ToString(grid),
                   "; moments and gradients by the same names\n# mesh: ", mesh_text, "\n", rules));
}

}  // namespace

void AddGridLayoutsCommand(Cli& cli, CLI::App& group) {
  CLI::App& command = cli.AddCommand(
      group, "layouts", "Shows how a model's parameters lie on a grid: rules for other commands",
      "  crossmesh grid layouts c=2,r=2,z=2 --model config.json --family llama --devices a.0-7 "
      "> trainer.rules\n");
  const auto flags = std::make_shared<LayoutsFlags>();
  AddOption(command, "grid", flags->grid, "Sizes of axes, e.g. r=4,z=8,data=2").Required();
  flags->model.AddModelTo(command);
  AddOption(command, "--devices", flags->devices, "Devices in order, e.g. a.0-7,b.0-7").Required();
  AddOption(command, "--family", flags->family, "How files name and store the model's parameters")
      .OneOf({"llama", "gpt2"})
      .Required();
  AddOption(command, "--vectors", flags->vectors,
            "Norms and biases: copied, or on the diagonal of c and r")
      .OneOf({"replicated", "diagonal"})
      .ShowDefault();
  cli.Run(command, [&cli, flags] { return ShowLayouts(cli, *flags); });
}

}  // namespace crossmesh

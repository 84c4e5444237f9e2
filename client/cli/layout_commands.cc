#include "client/cli/cli.h"
#include "client/cli/options.h"
#include "client/cli/report_text.h"
#include "client/cli/tensor_flags.h"
#include "common/base/status_macros.h"
#include "common/base/table.h"
#include "common/mesh/layout_rules.h"
#include "common/mesh/mesh.h"
#include "common/plan/tensor_table.h"

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>
#include <nlohmann/json.hpp>

namespace crossmesh {
namespace {

struct LayoutShowFlags {
  std::string mesh;
  std::string layout;
  std::string shape;
  std::string type = "F32";
  std::string manifest;
  std::string rules;
  std::string tensor;
};

// A tensor, and where it lies.
struct PlacedTensor {
  TensorSpec tensor;
  Placement placement;
};

absl::StatusOr<PlacedTensor> FromLayout(const LayoutShowFlags& flags, Mesh mesh) {
  PlacedTensor placed;
  ASSIGN_OR_RETURN(placed.tensor.shape, ParseShape(flags.shape));
  ASSIGN_OR_RETURN(placed.tensor.type, ParseDataType(flags.type));
  ASSIGN_OR_RETURN(placed.placement.layout, ParseLayout(flags.layout));
  placed.placement.mesh = std::move(mesh);
  return placed;
}

absl::StatusOr<PlacedTensor> FromRules(const LayoutShowFlags& flags, const Mesh& mesh) {
  ASSIGN_OR_RETURN(const Manifest manifest, ReadManifest(flags.manifest));
  const std::optional<int64_t> index = manifest.Find(flags.tensor);
  if (!index) {
    return absl::NotFoundError(absl::StrCat("tensor \"", flags.tensor, "\": not among the ",
                                            manifest.tensors().size(), " tensors of ",
                                            flags.manifest));
  }
  PlacedTensor placed{.tensor = manifest.tensors()[*index]};
  ASSIGN_OR_RETURN(const std::string text, ReadFile(flags.rules));
  ASSIGN_OR_RETURN(const LayoutRules rules, LayoutRules::Parse(text));
  ASSIGN_OR_RETURN(RuleMatch match, rules.Match(flags.tensor, placed.tensor.shape.rank()));
  // A rule may place a tensor on a part of the mesh only ("on fsdp2=0").
  ASSIGN_OR_RETURN(placed.placement.mesh, mesh.Select(match.coordinates));
  placed.placement.layout = std::move(match.layout);
  placed.tensor.type = match.type.value_or(placed.tensor.type);
  return placed;
}

absl::StatusOr<PlacedTensor> PlaceTensor(const LayoutShowFlags& flags) {
  ASSIGN_OR_RETURN(Mesh mesh, ParseMesh(flags.mesh));
  const bool by_layout = !flags.layout.empty() && !flags.shape.empty();
  const bool by_rules = !flags.manifest.empty() && !flags.rules.empty() && !flags.tensor.empty();
  if (by_layout == by_rules) {
    return absl::InvalidArgumentError(
        "layout show: expected either --layout and --shape, or --manifest, --rules and --tensor");
  }
  absl::StatusOr<PlacedTensor> placed =
      by_layout ? FromLayout(flags, std::move(mesh)) : FromRules(flags, mesh);
  RETURN_IF_ERROR(placed.status());
  RETURN_IF_ERROR(placed->placement.layout.Validate(placed->placement.mesh, placed->tensor.shape));
  return placed;
}

Coordinates CoordinatesOf(const Mesh& mesh, int64_t slot) {
  Coordinates coordinates;
  for (int axis = 0; axis < mesh.rank(); ++axis) {
    coordinates.emplace_back(mesh.axes()[axis].name, mesh.Coordinate(slot, axis));
  }
  return coordinates;
}

std::vector<std::string> BoxTexts(const Tile& tile) {
  std::vector<std::string> boxes;
  for (const Box& box : tile) boxes.push_back(ToString(box));
  return boxes;
}

nlohmann::json Document(const PlacedTensor& placed, const std::vector<Tile>& tiles) {
  const Mesh& mesh = placed.placement.mesh;
  nlohmann::json slots = nlohmann::json::array();
  for (int64_t slot = 0; slot < mesh.slots(); ++slot) {
    nlohmann::json coordinates = nlohmann::json::object();
    for (const auto& [axis, value] : CoordinatesOf(mesh, slot)) coordinates[axis] = value;
    const int64_t elements = Volume(tiles[slot]);
    slots.push_back({{"slot", slot},
                     {"device", ToString(mesh.devices()[slot])},
                     {"coordinates", coordinates},
                     {"boxes", BoxTexts(tiles[slot])},
                     {"elements", elements},
                     {"size_bytes", elements * ItemBytes(placed.tensor.type)}});
  }
  return {{"mesh", ToString(mesh)},
          {"layout", ToString(placed.placement.layout)},
          {"tensor", placed.tensor.name},
          {"shape", ToString(placed.tensor.shape)},
          {"dtype", std::string(DataTypeName(placed.tensor.type))},
          {"slots", slots}};
}

std::string Table(const PlacedTensor& placed, const std::vector<Tile>& tiles) {
  const Mesh& mesh = placed.placement.mesh;
  TextTable table({"SLOT>", "AT", "DEVICE", "BOXES", "ELEMENTS>", "SIZE>"});
  for (int64_t slot = 0; slot < mesh.slots(); ++slot) {
    const int64_t elements = Volume(tiles[slot]);
    const std::string boxes = absl::StrJoin(BoxTexts(tiles[slot]), " ");
    table.AddRow({absl::StrCat(slot), CoordinatesToString(CoordinatesOf(mesh, slot)),
                  ToString(mesh.devices()[slot]), boxes.empty() ? "-" : boxes,
                  absl::StrCat(elements), Bytes(elements * ItemBytes(placed.tensor.type))});
  }
  const absl::string_view name = placed.tensor.name;
  return absl::StrCat(name, name.empty() ? "" : " ", DataTypeName(placed.tensor.type), " ",
                      ToString(placed.tensor.shape), " as ", ToString(placed.placement.layout),
                      " over ", ToString(mesh), "\n\n", table.ToString());
}

absl::Status Show(Cli& cli, const LayoutShowFlags& flags) {
  ASSIGN_OR_RETURN(const PlacedTensor placed, PlaceTensor(flags));
  const std::vector<Tile> tiles =
      placed.placement.layout.Tiles(placed.placement.mesh, placed.tensor.shape);
  return cli.Answer(Document(placed, tiles), Table(placed, tiles));
}

}  // namespace

void AddLayoutCommands(Cli& cli, CLI::App& app) {
  CLI::App& group = cli.AddGroup(app, "layout", "Shows what a layout means");
  CLI::App& show = cli.AddCommand(
      group, "show", "Shows which slot holds which boxes of a tensor",
      "  crossmesh layout show --mesh 'data=2,model=2 on a.0-1,b.0-1' --layout '[data, model] "
      "chunk' --shape '[7, 5]'\n"
      "  crossmesh layout show --mesh 'fsdp=4 on a.0-3' --manifest examples/gpt2.json "
      "--rules examples/gpt2.fsdp.rules --tensor wte.weight\n");
  const auto flags = std::make_shared<LayoutShowFlags>();
  AddOption(show, "--mesh", flags->mesh, "Mesh, e.g. 'data=2 on a.0-1'").Required();
  AddOption(show, "--layout", flags->layout, "Layout, e.g. '[data, -] chunk'");
  AddOption(show, "--shape", flags->shape, "Shape, e.g. '[50257, 768]'");
  AddOption(show, "--dtype", flags->type, "Element type").ShowDefault();
  AddOption(show, "--manifest", flags->manifest, "Manifest or safetensors file");
  AddOption(show, "--rules", flags->rules, "Layout rules file");
  AddOption(show, "--tensor", flags->tensor, "Name of a tensor of the manifest");
  cli.Run(show, [&cli, flags] { return Show(cli, *flags); });
}

}  // namespace crossmesh

#include "client/cli/cli.h"
#include "client/cli/grid_by_layer.h"
#include "client/cli/grid_draw_command.h"
#include "client/cli/grid_flags.h"
#include "client/cli/grid_layouts_command.h"
#include "client/cli/grid_report.h"
#include "client/cli/grid_tune_command.h"
#include "client/cli/layer_grids_report.h"
#include "client/cli/options.h"
#include "common/base/count_text.h"
#include "common/base/format.h"
#include "common/base/status_macros.h"
#include "common/base/table.h"
#include "planner/parallelism/programs/layer_grids_price.h"
#include "planner/parallelism/published/axonn_model.h"
#include "planner/parallelism/published/published_models.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>
#include <nlohmann/json.hpp>

namespace crossmesh {
namespace {

constexpr char kNetworkExample[] = "--gpu-host h100x8 --count 64";

struct RankFlags {
  GridFlags grid;
  GridRankingView view;
  std::string cost_model = "ours";
  int64_t tensor_degree_least = 0;
};

// By the model of the paper, or of the authors' helper: communication alone.
absl::Status RankByAxonn(Cli& cli, const RankFlags& flags) {
  AxonnRankingRequest request{
      .devices = flags.grid.count(),
      .batch = flags.grid.batch(),
      .sequence = flags.grid.sequence(),
      .mlp_out = flags.cost_model == "axonn" ? MlpOutShape::kTrue : MlpOutShape::kQuirk};
  ASSIGN_OR_RETURN(request.model, flags.grid.ReadModel());
  ASSIGN_OR_RETURN(const PublishedCluster* const cluster, flags.grid.ReadCluster());
  if (request.batch < 1 || request.sequence < 1) {
    return absl::InvalidArgumentError("--batch and --sequence: expected at least 1");
  }
  const absl::StatusOr<PublishedModel> published = FindPublishedModel(request.model.name);
  request.tensor_degree_least = flags.tensor_degree_least;
  if (request.tensor_degree_least == 0 && published.ok()) {
    request.tensor_degree_least = published->tensor_degree_least;
  }
  const std::vector<AxonnGrid> ranked = RankAsAxonn(request, *cluster);
  if (ranked.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "grids of ", request.devices, " devices: expected powers of two with a tensor degree of ",
        "at least ", request.tensor_degree_least, " whose groups of samples divide a batch of ",
        request.batch, ", found none"));
  }
  TextTable table({"GRID", "COMMUNICATION>"});
  nlohmann::json document = {{"cost_model", flags.cost_model},
                             {"feasible", ranked.size()},
                             {"grids", nlohmann::json::array()}};
  for (const auto& [grid, seconds] : ranked) {
    if (static_cast<int64_t>(table.row_count()) == flags.view.top) break;
    table.AddRow({ToString(grid), FormatSeconds(seconds)});
    document["grids"].push_back({{"grid", ToString(grid)}, {"communication_seconds", seconds}});
  }
  return cli.Answer(document, absl::StrCat(table.ToString(), "\n",
                                           CountText(std::ssize(ranked), "grid", "grids"), "\n"));
}

absl::Status Rank(Cli& cli, const RankFlags& flags) {
  if (flags.cost_model != "ours") return RankByAxonn(cli, flags);
  ASSIGN_OR_RETURN(const GridRequest request, flags.grid.Read());
  const GridRanking ranking = RankGrids(request.step, request.limits);
  // Why there is none is listed where that was asked for.
  if (ranking.feasible.empty() && !flags.view.refused) return NoGridError(request.step, ranking);
  RETURN_IF_ERROR(cli.Answer(GridRankingDocument(request, ranking, flags.view),
                             GridRankingText(request, ranking, flags.view)));
  return ranking.feasible.empty() ? NoGridError(request.step, ranking) : absl::OkStatus();
}

struct NamedGridsFlags {
  GridFlags grid;
  std::vector<std::string> grids;
  bool by_layer = false;
};

// `over_memory`: grids that do not fit are priced as well.
absl::StatusOr<std::vector<RankedGrid>> PriceAll(const GridRequest& request,
                                                 const NamedGridsFlags& flags, bool over_memory) {
  std::vector<RankedGrid> priced;
  for (const std::string& text : flags.grids) {
    ASSIGN_OR_RETURN(const Grid grid, ParseGrid(text));
    ASSIGN_OR_RETURN(RankedGrid one, PriceGrid(request.step, grid, request.limits, over_memory));
    priced.push_back(std::move(one));
  }
  return priced;
}

bool HasLayerGrids(const NamedGridsFlags& flags) {
  return std::ranges::any_of(flags.grids, NamesLayerGrids);
}

// Where any has layers with grids of their own, all as those.
absl::StatusOr<std::vector<LayerGridsPrice>> PriceAllLayers(const GridRequest& request,
                                                            const NamedGridsFlags& flags,
                                                            bool over_memory) {
  std::vector<LayerGridsPrice> priced;
  for (const std::string& text : flags.grids) {
    ASSIGN_OR_RETURN(const LayerGrids grids, ParseLayerGrids(text));
    ASSIGN_OR_RETURN(LayerGridsPrice one, PriceLayerGrids(request.step, grids, over_memory));
    priced.push_back(std::move(one));
  }
  return priced;
}

absl::Status ExplainGrid(Cli& cli, const NamedGridsFlags& flags) {
  ASSIGN_OR_RETURN(const GridRequest request, flags.grid.Read());
  nlohmann::json document;
  std::string text;
  if (HasLayerGrids(flags)) {
    ASSIGN_OR_RETURN(const auto prices, PriceAllLayers(request, flags, false));
    document = LayerGridsDocument(request, prices.front());
    text = LayerGridsExplanation(request, prices.front());
  } else {
    ASSIGN_OR_RETURN(const std::vector<RankedGrid> grids, PriceAll(request, flags, false));
    document = GridExplanationDocument(request, grids.front());
    text = GridExplanation(request, grids.front());
  }
  if (flags.by_layer) {
    const GridOfRequest grid{request, flags.grids.front()};
    RETURN_IF_ERROR(AddByLayer(flags.grid, grid, document, text));
  }
  return cli.Answer(document, text);
}

absl::Status Compare(Cli& cli, const NamedGridsFlags& flags) {
  ASSIGN_OR_RETURN(const GridRequest request, flags.grid.Read());
  if (HasLayerGrids(flags)) {
    ASSIGN_OR_RETURN(const auto prices, PriceAllLayers(request, flags, true));
    return cli.Answer(LayerGridsDocuments(request, prices), LayerGridsComparisonText(prices));
  }
  ASSIGN_OR_RETURN(const std::vector<RankedGrid> grids, PriceAll(request, flags, true));
  return cli.Answer(GridComparisonDocument(request, grids), GridComparisonText(grids));
}

absl::Status Memory(Cli& cli, const NamedGridsFlags& flags) {
  ASSIGN_OR_RETURN(const GridRequest request, flags.grid.Read());
  if (HasLayerGrids(flags)) {
    ASSIGN_OR_RETURN(const auto prices, PriceAllLayers(request, flags, true));
    return cli.Answer(LayerGridsDocuments(request, prices), LayerGridsMemoryText(request, prices));
  }
  ASSIGN_OR_RETURN(const std::vector<RankedGrid> grids, PriceAll(request, flags, true));
  return cli.Answer(GridMemoryDocument(request, grids), GridMemoryText(request, grids));
}

void AddRankCommand(Cli& cli, CLI::App& group) {
  CLI::App& command = cli.AddCommand(
      group, "rank", "Ranks all grids of a training by predicted time",
      absl::StrCat("  crossmesh grid rank --model GPT-20B --batch 512 --sequence 2048 ",
                   kNetworkExample, "\n",
                   "  crossmesh grid rank --model config.json --batch 1024 --sequence 4096 "
                   "--devices a.0-7,b.0-7 --topology network.json --most r=8 --zero 1\n"
                   "  crossmesh grid rank --model GPT-80B --batch 1024 --sequence 2048 --cluster "
                   "perlmutter_measured --count 1024 --cost-model axonn\n"));
  const auto flags = std::make_shared<RankFlags>();
  flags->grid.AddTo(command);
  flags->grid.AddLimitsTo(command);
  AddOption(command, "--top", flags->view.top, "So many grids").NotNegative().ShowDefault();
  AddFlag(command, "--refused", flags->view.refused, "List grids that are refused, too");
  AddOption(command, "--cost-model", flags->cost_model,
            "ours, or that of the literature: axonn (the paper's), axonn_helper (its authors' "
            "script); they need --cluster")
      .OneOf({"ours", "axonn", "axonn_helper"})
      .ShowDefault();
  AddOption(command, "--tensor-degree-least", flags->tensor_degree_least,
            "c * r * z of models of the literature, in the place of memory")
      .NotNegative();
  cli.Run(command, [&cli, flags] { return Rank(cli, *flags); });
}

using GridsAction = absl::Status (*)(Cli& cli, const NamedGridsFlags& flags);

struct NamedGridsCommand {
  const char* name;
  const char* description;
  const char* grids;  // of the example
  int count;          // of grids; 0: any
  GridsAction action;
};

void AddNamedGridsCommand(Cli& cli, CLI::App& group, const NamedGridsCommand& named) {
  CLI::App& command = cli.AddCommand(
      group, named.name, named.description,
      absl::StrCat("  crossmesh grid ", named.name, " ", named.grids,
                   " --model GPT-20B --batch 512 --sequence 2048 ", kNetworkExample, "\n"));
  const auto flags = std::make_shared<NamedGridsFlags>();
  Option grids = AddOption(command, "grid", flags->grids,
                           "Sizes of axes, e.g. r=4,z=8; other ones of some layers: "
                           "r=4,z=8+z=32@mlp, +z=32@0-3, +z=32@2.attention");
  grids.Required();
  if (named.count > 0) grids.Expect(named.count);
  flags->grid.AddTo(command);
  if (named.action == ExplainGrid) {
    AddFlag(command, "--by-layer", flags->by_layer,
            "Also what of each layer's collectives is exposed, by the program of the grid on "
            "--devices");
  }
  cli.Run(command, [&cli, flags, action = named.action] { return action(cli, *flags); });
}

}  // namespace

void AddGridCommands(Cli& cli, CLI::App& app) {
  CLI::App& group =
      cli.AddGroup(app, "grid", "What trainings on grids of devices take: time and memory");
  AddRankCommand(cli, group);
  AddNamedGridsCommand(
      cli, group,
      {"explain", "Shows where the time and the memory of a grid go", "r=8,z=8", 1, ExplainGrid});
  AddNamedGridsCommand(
      cli, group,
      {"compare", "Sets the predictions of grids side by side", "z=64 r=8,z=8", 0, Compare});
  AddNamedGridsCommand(
      cli, group, {"memory", "Shows what devices hold, term by term", "z=64 r=8,z=8", 0, Memory});
  AddGridDrawCommand(cli, group);
  AddGridLayoutsCommand(cli, group);
  AddGridTuneCommand(cli, group);
}

}  // namespace crossmesh

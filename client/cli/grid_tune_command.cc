#include "client/cli/grid_tune_command.h"

#include "client/cli/cli.h"
#include "client/cli/grid_flags.h"
#include "client/cli/layer_exposures_report.h"
#include "client/cli/layer_grids_report.h"
#include "client/cli/options.h"
#include "client/cli/program_of_grid.h"
#include "client/cli/progress.h"
#include "client/cli/tune_findings.h"
#include "client/client.h"
#include "client/outcome.h"
#include "common/base/clock.h"
#include "common/base/count_text.h"
#include "common/base/error_place.h"
#include "common/base/format.h"
#include "common/base/status_macros.h"
#include "common/base/table.h"
#include "common/wire/tensor_codec.h"
#include "planner/layers/layer_program_codec.h"
#include "planner/parallelism/measured_axes.h"
#include "planner/parallelism/programs/layer_grids_price.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>
#include <absl/strings/str_join.h>
#include <nlohmann/json.hpp>

namespace crossmesh {
namespace {

struct GridTuneFlags {
  GridFlags grid;
  std::vector<std::string> grids;
  int64_t top = 8;
  int64_t iterations = 3;
  bool with_pipeline = false;
  bool no_checksums = false;
  bool by_layer = false;
};

// A grid that was rehearsed.
struct RehearsedGrid {
  // One of all layers, or those of layers with grids of their own.
  std::optional<RankedGrid> ranked = std::nullopt;
  std::optional<LayerGridsPrice> of_layers = std::nullopt;
  int64_t rank = 0;  // by the cost model, from 1
  int64_t pending_scatters = 0;
  double predicted = 0;
  double measured = 0;
  double exposed = 0;          // as predicted
  v1::LayerRunSummary layers;  // of which only these, as predicted
  std::string run;             // its id
  absl::Status outcome;

  std::string name() const {
    return ranked.has_value() ? ToString(ranked->shape.grid) : ToString(of_layers->grids);
  }
  double modelled() const { return ranked.has_value() ? ranked->seconds : of_layers->seconds(); }
  int64_t microbatches() const {
    return ranked.has_value() ? ranked->shape.microbatches : of_layers->shapes.front().microbatches;
  }
  std::vector<Grid> all_grids() const {
    return ranked.has_value() ? std::vector<Grid>{ranked->shape.grid} : of_layers->parts.grids;
  }
};

// Of layers with grids of their own, each after those of the ranking that take no longer.
absl::Status ChooseOfLayers(const GridRequest& request, const GridTuneFlags& flags,
                            const GridRanking& ranking, std::vector<RehearsedGrid>& chosen) {
  for (const std::string& text : flags.grids) {
    if (!NamesLayerGrids(text)) continue;
    ASSIGN_OR_RETURN(const LayerGrids grids, ParseLayerGrids(text));
    ASSIGN_OR_RETURN(LayerGridsPrice price, PriceLayerGrids(request.step, grids));
    const int64_t before = std::ranges::count_if(
        ranking.feasible,
        [&price](const RankedGrid& other) { return other.seconds <= price.seconds(); });
    chosen.push_back({.of_layers = std::move(price), .rank = before + 1});
  }
  return absl::OkStatus();
}

// The best grids, or those that were named.
absl::StatusOr<std::vector<RehearsedGrid>> Choose(const GridRequest& request,
                                                  const GridTuneFlags& flags) {
  GridLimits limits = request.limits;
  // Of these there are no programs.
  limits.most[GridAxis::kContext] = limits.most[GridAxis::kExpert] = 1;
  if (!flags.with_pipeline) limits.most[GridAxis::kPipeline] = 1;
  const GridRanking ranking = RankGrids(request.step, limits);
  if (ranking.feasible.empty()) return NoGridError(request.step, ranking);
  std::vector<RehearsedGrid> chosen;
  for (int64_t place = 0; place < std::ssize(ranking.feasible); ++place) {
    const RankedGrid& ranked = ranking.feasible[place];
    const bool is_chosen =
        flags.grids.empty()
            ? place < flags.top
            : std::ranges::find(flags.grids, ToString(ranked.shape.grid)) != flags.grids.end();
    if (is_chosen) chosen.push_back({.ranked = ranked, .rank = place + 1});
  }
  RETURN_IF_ERROR(ChooseOfLayers(request, flags, ranking, chosen));
  if (flags.grids.empty() || chosen.size() == flags.grids.size()) return chosen;
  for (const std::string& text : flags.grids) {
    if (NamesLayerGrids(text)) continue;
    ASSIGN_OR_RETURN(const Grid grid, ParseGrid(text));
    RETURN_IF_ERROR(PriceGrid(request.step, grid, limits).status());
  }
  return absl::InvalidArgumentError(
      "grids: expected each once, as grid rank writes them, of c, r, z and data, and of pipeline "
      "with --with-pipeline");
}

// How a grid is carried out on a cluster.
struct Rehearsal {
  Client& client;
  const DescribedDevices& described;
  const v1::Topology& topology;
  bool chooses_scatters;
  TuneFindings& findings;
};

absl::Status Rehearse(const Rehearsal& on, const StepModel& step, const GridTuneFlags& flags,
                      RehearsedGrid& grid) {
  const ProgramForm form{.overlaps = step.training().overlaps,
                         .chooses_scatters = on.chooses_scatters};
  ASSIGN_OR_RETURN(const WindowedGrid planned,
                   grid.ranked.has_value()
                       ? PlanProgramOfGrid(step, grid.ranked->shape, on.described, form)
                       : PlanProgramOfGrid(step, *grid.of_layers, on.described, form));
  const LayerProgram& program = planned.program();
  grid.pending_scatters = planned.pending_scatters;
  v1::StartPipelineRequest request;
  *request.mutable_inline_layers() = ToProto(program);
  request.mutable_inline_layers()->set_name("grid");
  *request.mutable_inline_layers()->mutable_topology() = on.topology;
  request.set_request_id(NewRequestId());
  request.set_iterations(flags.iterations);
  request.set_rehearsal(true);
  request.set_stop_at_failure(true);
  if (flags.no_checksums) request.set_checksums(false);
  ASSIGN_OR_RETURN(const v1::PipelineRun run,
                   on.client.StartPipeline(request, [](const v1::PipelineRun&) {}));
  grid.run = run.id();
  RETURN_IF_ERROR(OutcomeOf(run));
  // Axes of several grids are not told apart by what moves.
  if (grid.ranked.has_value()) on.findings.Add(grid.ranked->shape, program, run.measurement());
  grid.predicted = run.plan().predicted_seconds();
  grid.measured = run.median_seconds();
  for (const v1::LayerRunSummary::Transfer& transfer : run.plan().layers().transfers()) {
    grid.exposed += transfer.exposed_seconds();
  }
  *grid.layers.mutable_layers() = run.plan().layers().layers();
  return absl::OkStatus();
}

std::string RatioOf(const RehearsedGrid& grid) {
  return absl::StrFormat("%.2f", grid.measured / grid.predicted);
}

// Null: none could be rehearsed.
const RehearsedGrid* BestOf(const std::vector<RehearsedGrid>& grids) {
  const RehearsedGrid* best = nullptr;
  for (const RehearsedGrid& grid : grids) {
    if (grid.outcome.ok() && (best == nullptr || grid.measured < best->measured)) best = &grid;
  }
  return best;
}

// Of the rates of its axes, each once, in their order.
std::vector<std::string> SourcesOf(const GridRequest& request, const RehearsedGrid& rehearsed) {
  std::vector<std::string> sources;
  for (const Grid& grid : rehearsed.all_grids()) {
    for (const GridAxis axis : request.step.training().order) {
      if (grid[axis] == 1) continue;
      std::string source(RateSourceName(request.step.RateOf(grid, axis).source()));
      if (std::ranges::find(sources, source) == sources.end()) sources.push_back(std::move(source));
    }
  }
  return sources;
}

std::string LayersText(const std::vector<RehearsedGrid>& grids) {
  std::string text;
  for (const RehearsedGrid& grid : grids) {
    if (!grid.outcome.ok()) continue;
    absl::StrAppend(&text, "\n", grid.name(), ", as predicted\n", LayerExposuresText(grid.layers));
  }
  return text;
}

std::string TuneText(const GridRequest& request, const std::vector<RehearsedGrid>& grids,
                     const TuneFindings& findings) {
  TextTable table({"GRID", "MICROBATCHES>", "PENDING SCATTERS>", "RATES", "COST MODEL>",
                   "PREDICTED>", "EXPOSED>", "MEASURED>", "RATIO>"});
  std::string failures;
  for (const RehearsedGrid& grid : grids) {
    const std::string name = grid.name();
    const bool ok = grid.outcome.ok();
    table.AddRow({name, absl::StrCat(grid.microbatches()),
                  ok ? absl::StrCat(grid.pending_scatters) : "-",
                  absl::StrJoin(SourcesOf(request, grid), ", "), FormatSeconds(grid.modelled()),
                  ok ? FormatSeconds(grid.predicted) : "-", ok ? FormatSeconds(grid.exposed) : "-",
                  ok ? FormatSeconds(grid.measured) : "-", ok ? RatioOf(grid) : "-"});
    if (!ok) absl::StrAppend(&failures, name, ": ", grid.outcome.message(), "\n");
  }
  std::string text = absl::StrCat(table.ToString(), "\nnetwork: ", request.network, "\n", failures);
  const RehearsedGrid* const best = BestOf(grids);
  if (best == nullptr) return text;
  return absl::StrCat(text, "\n", findings.Text(), "\nbest: ", best->name(), ", ",
                      FormatSeconds(best->measured), " measured, number ", best->rank,
                      " by the cost model\n");
}

nlohmann::json TuneDocument(const GridRequest& request, const std::vector<RehearsedGrid>& grids,
                            const TuneFindings& findings) {
  nlohmann::json document = {{"network", request.network},
                             {"grids", nlohmann::json::array()},
                             {"findings", findings.Document()}};
  for (const RehearsedGrid& grid : grids) {
    nlohmann::json& of = document["grids"].emplace_back();
    of = {{"grid", grid.name()},
          {"rank", grid.rank},
          {"microbatches", grid.microbatches()},
          {"rate_sources", SourcesOf(request, grid)},
          {"cost_model_seconds", grid.modelled()},
          {"run", grid.run}};
    if (!grid.outcome.ok()) {
      of["error"] = std::string(grid.outcome.message());
      continue;
    }
    of["pending_scatters"] = grid.pending_scatters;
    of["predicted_seconds"] = grid.predicted;
    of["exposed_seconds"] = grid.exposed;
    of["measured_seconds"] = grid.measured;
    of["layers"] = LayerExposuresDocument(grid.layers);
  }
  if (const RehearsedGrid* const best = BestOf(grids)) {
    document["best"] = best->name();
  }
  return document;
}

absl::Status Tune(Cli& cli, const GridTuneFlags& flags) {
  if (flags.iterations < 1 || flags.top < 1) {
    return absl::InvalidArgumentError(absl::StrCat("--top and --iterations: expected at least 1, ",
                                                   "found ", flags.top, " and ", flags.iterations));
  }
  DescribedDevices described;
  ASSIGN_OR_RETURN(described.devices, flags.grid.ReadDevices());
  ASSIGN_OR_RETURN(Client client, cli.Connect());
  ASSIGN_OR_RETURN(const v1::Network network, client.GetNetwork());
  ASSIGN_OR_RETURN(described.topology, FromProto(network.topology()));
  std::optional<MeasuredAxes> axes;
  if (network.has_axes()) {
    ASSIGN_OR_RETURN(axes, FromProto(network.axes()));
  }
  ASSIGN_OR_RETURN(const GridRequest request, flags.grid.ReadOn(described.topology, axes));
  ASSIGN_OR_RETURN(std::vector<RehearsedGrid> grids, Choose(request, flags));
  const RealClock clock;
  Progress progress("tune", std::ssize(grids), Progress::FormFor(cli.json()), clock);
  progress.CountIn("grids");
  TuneFindings findings(request.step);
  absl::Status failed;
  for (size_t place = 0; place < grids.size(); ++place) {
    const std::string name = grids[place].name();
    progress.Update(static_cast<int64_t>(place), name);
    grids[place].outcome =
        Rehearse({client, described, network.topology(), request.chooses_scatters, findings},
                 request.step, flags, grids[place]);
    failed.Update(At(name, grids[place].outcome));
  }
  progress.Finish(absl::StrCat("tune: ", CountText(std::ssize(grids), "grid", "grids"), " tried"));
  RETURN_IF_ERROR(cli.Answer(
      TuneDocument(request, grids, findings),
      absl::StrCat(TuneText(request, grids, findings), flags.by_layer ? LayersText(grids) : "")));
  cli.SetExitCode(ExitCode::kFailed);
  return failed;
}

}  // namespace

void AddGridTuneCommand(Cli& cli, CLI::App& group) {
  CLI::App& command = cli.AddCommand(
      group, "tune",
      "Rehearses the best grids on the workers: ops pass their time, collectives move real bytes",
      "  crossmesh grid tune --devices a.0-3,b.0-3 --layers 4 --hidden 1024 --heads 16 "
      "--vocabulary 32000 --batch 64 --sequence 512 --top 4\n"
      "  crossmesh grid tune z=8 r=2,z=4 --devices a.0-3,b.0-3 --model config.json --batch 64 "
      "--sequence 512\n");
  const auto flags = std::make_shared<GridTuneFlags>();
  AddOption(command, "grid", flags->grids,
            "These grids, e.g. r=4,z=2, or with others of some layers, r=4,z=2+z=8@mlp, instead of "
            "the best");
  cli.AddControllerFlags(command);
  flags->grid.AddTo(command);
  flags->grid.AddLimitsTo(command);
  AddOption(command, "--top", flags->top, "So many of the best grids").ShowDefault();
  AddOption(command, "--iterations", flags->iterations, "Of each grid").ShowDefault();
  AddFlag(command, "--with-pipeline", flags->with_pipeline, "Grids with stages as well");
  AddFlag(command, "--by-layer", flags->by_layer,
          "Also what of each layer's collectives is predicted to be exposed");
  AddFlag(command, "--no-checksums", flags->no_checksums, "Transfers are not verified");
  cli.Run(command, [&cli, flags] { return Tune(cli, *flags); });
}

}  // namespace crossmesh

#include "client/cli/cli.h"
#include "client/cli/options.h"
#include "client/cli/picture.h"
#include "client/cli/redistribution_program.h"
#include "client/cli/redistribution_report.h"
#include "common/base/error_place.h"
#include "common/base/status_macros.h"
#include "common/mesh/data_type.h"
#include "common/mesh/topology_file.h"
#include "planner/redistribute/baselines/baselines.h"
#include "planner/redistribute/derivation_proof.h"
#include "planner/redistribute/mesh_cost.h"
#include "planner/redistribute/redistribution_search.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>
#include <nlohmann/json.hpp>

namespace crossmesh {
namespace {

struct RedistributeFlags {
  std::string mesh;
  std::string shape;
  std::string type = "F32";
  std::string source;
  std::string destination;
  std::vector<std::string> source_partial;
  std::vector<std::string> destination_partial;
  std::string reduction = "sum";
  std::string topology;
  std::string objective = "time";
  std::optional<int64_t> cap;
  int64_t staging = 0;
  bool no_relay = false;
  std::string emit;
  std::string svg;
};

// A request, the mesh that it is on, and what collectives cost there.
struct Redistribution {
  RedistributionRequest request;
  RedistributionOptions options;
};

absl::StatusOr<UnevenRule> RuleOf(const Layout& source, const Layout& destination) {
  const AxisLayout* const from = source.axes();
  const AxisLayout* const to = destination.axes();
  if (from == nullptr || to == nullptr) {
    return absl::InvalidArgumentError(
        "redistribute: expected layouts by axes, found one of explicit tiles");
  }
  if (from->rule == to->rule) return from->rule;
  return absl::InvalidArgumentError(
      absl::StrCat("redistribute: expected one rule for lengths that do not divide, found ",
                   UnevenRuleName(from->rule), " for the source and ", UnevenRuleName(to->rule),
                   " for the destination"));
}

absl::StatusOr<Redistribution> Read(const RedistributeFlags& flags) {
  Redistribution read;
  RedistributionRequest& request = read.request;
  ASSIGN_OR_RETURN(const Mesh mesh, At("--mesh", ParseMesh(flags.mesh)));
  request.axes = mesh.axes();
  ASSIGN_OR_RETURN(request.shape, At("--shape", ParseShape(flags.shape)));
  ASSIGN_OR_RETURN(const DataType type, At("--dtype", ParseDataType(flags.type)));
  request.item_bytes = ItemBytes(type);
  ASSIGN_OR_RETURN(const Layout source, At("--source", ParseLayout(flags.source)));
  ASSIGN_OR_RETURN(const Layout destination, At("--destination", ParseLayout(flags.destination)));
  ASSIGN_OR_RETURN(request.rule, RuleOf(source, destination));
  ASSIGN_OR_RETURN(const PartialReduction reduction,
                   At("--reduction", ParsePartialReduction(flags.reduction)));
  ASSIGN_OR_RETURN(request.source,
                   At("--source", EndOf(source, request.axes, flags.source_partial, reduction)));
  ASSIGN_OR_RETURN(
      request.destination,
      At("--destination", EndOf(destination, request.axes, flags.destination_partial, reduction)));
  Topology topology;
  if (!flags.topology.empty()) {
    ASSIGN_OR_RETURN(const std::string text, ReadFile(flags.topology));
    ASSIGN_OR_RETURN(topology, At(flags.topology, ParseTopologyFile(text)));
  }
  read.options = {.objective = flags.objective == "bytes" ? RedistributionObjective::kBytes
                                                          : RedistributionObjective::kSeconds,
                  .cost = CostOfMesh(mesh, topology),
                  .live_bytes_max = flags.cap,
                  .staging = {.bytes = flags.staging},
                  .relay = !flags.no_relay};
  return read;
}

std::vector<NamedDerivation> Baselines(const Redistribution& redistribution) {
  std::vector<NamedDerivation> named;
  for (const RedistributionBaseline baseline : kRedistributionBaselines) {
    NamedDerivation& entry = named.emplace_back();
    entry.name = std::string(RedistributionBaselineName(baseline));
    absl::StatusOr<Derivation> derivation =
        PlanBaseline(baseline, redistribution.request, redistribution.options.cost);
    if (derivation.ok()) {
      entry.derivation = *std::move(derivation);
    } else {
      entry.refusal = std::string(derivation.status().message());
    }
  }
  return named;
}

absl::Status Plan(Cli& cli, const RedistributeFlags& flags) {
  ASSIGN_OR_RETURN(const Redistribution redistribution, Read(flags));
  ASSIGN_OR_RETURN(const RedistributionResult result,
                   SearchRedistribution(redistribution.request, redistribution.options));
  RETURN_IF_ERROR(ProveDerivation(
      result.derivation, {.live_bytes_max = flags.cap, .staging = redistribution.options.staging}));
  if (!flags.emit.empty()) {
    ASSIGN_OR_RETURN(const std::string program, EmitProgram(result.derivation, flags.emit));
    cli.Print(program);
    return absl::OkStatus();
  }
  const std::vector<NamedDerivation> baselines = Baselines(redistribution);
  if (!flags.svg.empty()) {
    RETURN_IF_ERROR(
        DrawPicture(RedistributionPicture(result.derivation, flags.cap, baselines), flags.svg));
  }
  return cli.Answer(RedistributionDocument(result.derivation, flags.cap, baselines),
                    RedistributionText(result.derivation, flags.cap, baselines));
}

}  // namespace

void AddRedistributeCommand(Cli& cli, CLI::App& app) {
  CLI::App& command = cli.AddCommand(
      app, "redistribute",
      "Plans how a tensor changes its layout inside a mesh, by collectives, within a cap of memory",
      "  crossmesh redistribute --mesh 'x=4 on a.0-3' --shape '[1024, 1024]' --source '[x, -]' "
      "--destination '[-, x]'\n"
      "  crossmesh redistribute --mesh 'node=2,gpu=4 on a.0-3,b.0-3' --shape '[4096, 4096]' \\\n"
      "      --source '[node*gpu, -]' --destination '[-, -]' --cap 100000000 --topology "
      "network.json\n"
      "  crossmesh redistribute --mesh 'x=4 on a.0-3' --shape '[8192]' --source '[-]' "
      "--source-partial x --destination '[x]'\n"
      "  crossmesh redistribute --mesh 'x=4 on a.0-3' --shape '[1024, 1024]' --source '[x, -]' "
      "--destination '[-, x]' --emit torch > move.py\n"
      "  crossmesh redistribute --mesh 'x=2,y=4 on a.0-7' --shape '[64, 64]' --source '[x, y]' "
      "--destination '[y, x]' --svg move.svg\n"
      "Nothing is moved: the sequence of steps is proven on every device, and printed beside what "
      "others do.\n");
  const auto flags = std::make_shared<RedistributeFlags>();
  AddOption(command, "--mesh", flags->mesh, "Mesh, as text").Required();
  AddOption(command, "--shape", flags->shape, "Of the tensor, e.g. '[1024, 1024]'").Required();
  AddOption(command, "--dtype", flags->type, "Of its elements").ShowDefault();
  AddOption(command, "--source", flags->source, "Layout before").Required();
  AddOption(command, "--destination", flags->destination, "Layout afterwards").Required();
  AddOption(command, "--source-partial", flags->source_partial,
            "Axes over which devices hold summands, a,b")
      .SplitAt(',');
  AddOption(command, "--destination-partial", flags->destination_partial,
            "Those of them that stay so, a,b")
      .SplitAt(',');
  AddOption(command, "--reduction", flags->reduction, "What is made of summands")
      .OneOf({"sum", "mean", "min", "max"})
      .ShowDefault();
  AddOption(
      command, "--cap", flags->cap,
      "Most bytes that are live on a device in any step: what goes in, what comes out, staging");
  AddOption(command, "--staging-bytes", flags->staging, "That each step which communicates takes")
      .NotNegative();
  AddOption(command, "--objective", flags->objective, "What is to be least")
      .OneOf({"time", "bytes"})
      .ShowDefault();
  AddFlag(command, "--no-relay", flags->no_relay, "Collectives only: no step is point to point");
  AddOption(command, "--emit", flags->emit,
            "Print a Python program of a framework's own collectives instead")
      .OneOf({"torch", "jax"});
  AddOption(command, "--svg", flags->svg,
            "Draw it beside what others do to this file: .svg, .png or .pdf");
  AddOption(command, "--topology", flags->topology,
            "Network file, for times; without it each host has one NIC of 100 Gbit/s");
  cli.Run(command, [&cli, flags] { return Plan(cli, *flags); });
}

}  // namespace crossmesh

#include "client/cli/cli.h"
#include "client/cli/local_spec.h"
#include "client/cli/options.h"
#include "client/cli/plan_report.h"
#include "client/cli/simulation_files.h"
#include "client/cli/simulation_report.h"
#include "client/cli/spec_flags.h"
#include "common/base/status_macros.h"
#include "planner/network/simulator.h"

#include <memory>
#include <string>
#include <vector>

#include <absl/strings/str_cat.h>
#include <nlohmann/json.hpp>

namespace crossmesh {
namespace {

struct SimulateFlags {
  SpecFlags spec;
  std::string sharing = "planned";
  SimulationFiles files;
  int64_t ports_max = 12;
};

absl::Status RunSimulate(Cli& cli, const SimulateFlags& flags) {
  ASSIGN_OR_RETURN(const v1::ReshardSpec spec, flags.spec.Read());
  ASSIGN_OR_RETURN(const LocalPlan made, MakeLocalPlan(spec));
  const PortSharingRule sharing =
      flags.sharing == "planned" ? PortSharingRule::kPlanned : PortSharingRule::kEqual;
  ASSIGN_OR_RETURN(
      const SimulatedTimeline run,
      Simulate(made.plan, made.topology, {.sharing = sharing, .keep_transfers = true}));
  RETURN_IF_ERROR(flags.files.Write(made.plan, made.topology, run));
  const v1::PlanSummary summary = made.Summary();
  if (cli.json()) {
    nlohmann::json document = SimulationDocument(made.plan, run);
    document["warnings"] = std::vector(summary.warnings().begin(), summary.warnings().end());
    cli.PrintDocument(document);
  } else {
    cli.Print(
        absl::StrCat(SimulationText(made.plan, run, flags.ports_max), "\n", RatesNote(summary)));
  }
  return absl::OkStatus();
}

}  // namespace

void AddSimulateCommand(Cli& cli, CLI::App& app) {
  CLI::App& command = cli.AddCommand(
      app, "simulate", "Runs a reshard on a described network, chunk by chunk, without machines",
      "  crossmesh simulate --manifest examples/gpt2.json --source 'fsdp=4 on a.0,b.0,c.0,d.0' "
      "--source-rules examples/gpt2.fsdp.rules --destination 'replica=2,model=2 on e.0-1,f.0-1' "
      "--destination-rules examples/gpt2.tp.rules --replica-axes replica --topology network.json "
      "--trace trace.json\n"
      "Open the trace with chrome://tracing or ui.perfetto.dev.\n");
  const auto flags = std::make_shared<SimulateFlags>();
  flags->spec.AddTo(command);
  AddOption(command, "--sharing", flags->sharing,
            "How connections share a NIC: planned, by the bytes sent over them, as workers "
            "see to (default), or equal")
      .OneOf({"equal", "planned"});
  flags->files.AddTo(command);
  AddOption(command, "--ports", flags->ports_max, "Ports listed, the busiest first (default 12)");
  cli.Run(command, [&cli, flags] { return RunSimulate(cli, *flags); });
}

}  // namespace crossmesh

#include "client/cli/cli.h"
#include "client/cli/local_plan.h"
#include "client/cli/simulation_report.h"
#include "client/cli/spec_flags.h"
#include "common/base/status_macros.h"
#include "controller/network/simulator.h"

#include <cerrno>
#include <fstream>
#include <memory>
#include <string>

#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

struct SimulateFlags {
  SpecFlags spec;
  std::string sharing = "planned";
  std::string trace;
  int64_t ports_max = 12;
};

absl::Status WriteTrace(const Plan& plan, const SimulatedRun& run, const std::string& path) {
  std::ofstream file(path);
  file << SimulationTrace(plan, run).dump() << "\n";
  file.close();
  if (file) return absl::OkStatus();
  return absl::ErrnoToStatus(errno, absl::StrCat("writing ", path));
}

absl::Status RunSimulate(Cli& cli, const SimulateFlags& flags) {
  ASSIGN_OR_RETURN(const v1::ReshardSpec spec, flags.spec.Read());
  ASSIGN_OR_RETURN(const LocalPlan made, MakeLocalPlan(spec));
  const PortSharingRule sharing =
      flags.sharing == "planned" ? PortSharingRule::kPlanned : PortSharingRule::kEqual;
  ASSIGN_OR_RETURN(const SimulatedRun run, Simulate(made.plan, made.topology,
                                                    {.sharing = sharing, .keep_transfers = true}));
  if (!flags.trace.empty()) RETURN_IF_ERROR(WriteTrace(made.plan, run, flags.trace));
  if (cli.json()) {
    cli.PrintDocument(SimulationDocument(made.plan, run));
  } else {
    cli.Print(SimulationText(made.plan, run, flags.ports_max));
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
  command
      .add_option("--sharing", flags->sharing,
                  "How connections share a NIC: planned, by the bytes sent over them, as workers "
                  "see to (default), or equal")
      ->check(CLI::IsMember({"equal", "planned"}));
  command.add_option("--trace", flags->trace,
                     "Write the run in Chrome's trace format to this file");
  command.add_option("--ports", flags->ports_max, "Ports listed, the busiest first (default 12)");
  cli.Run(command, [&cli, flags] { return RunSimulate(cli, *flags); });
}

}  // namespace crossmesh

#include "client/cli/cli.h"
#include "client/cli/local_spec.h"
#include "client/cli/options.h"
#include "client/cli/plan_report.h"
#include "client/cli/simulation_files.h"
#include "client/cli/spec_flags.h"
#include "client/client.h"
#include "common/base/error_place.h"
#include "common/base/status_macros.h"
#include "planner/network/simulator.h"
#include "planner/reshard/strategy.h"

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <absl/functional/function_ref.h>
#include <absl/strings/str_cat.h>
#include <nlohmann/json.hpp>

namespace crossmesh {
namespace {

struct PlanFlags {
  SpecFlags spec;
  bool all_strategies = false;
  bool explain = false;
  int32_t explain_relays = 0;
  SimulationFiles files;
};

using Planner =
    absl::FunctionRef<absl::StatusOr<v1::PlanReshardResponse>(const v1::PlanReshardRequest&)>;

absl::Status PlanOne(Cli& cli, const v1::PlanReshardRequest& request, Planner planner) {
  ASSIGN_OR_RETURN(const v1::PlanReshardResponse response, planner(request));
  if (cli.json()) {
    cli.PrintDocument(response);
    return absl::OkStatus();
  }
  cli.Print(PlanSummaryText(response.summary()));
  if (!response.text().empty()) cli.Print("\n" + response.text());
  return absl::OkStatus();
}

absl::Status PlanAll(Cli& cli, v1::PlanReshardRequest request, Planner planner) {
  std::vector<v1::PlanSummary> summaries;
  nlohmann::json plans = nlohmann::json::array();
  for (const Strategy strategy : kAllStrategies) {
    request.mutable_spec()->set_strategy(std::string(StrategyName(strategy)));
    ASSIGN_OR_RETURN(const v1::PlanReshardResponse response, planner(request));
    plans.push_back(ToJson(response));
    summaries.push_back(response.summary());
  }
  if (cli.json()) {
    cli.PrintDocument({{"plans", plans}});
  } else {
    cli.Print(StrategyTable(summaries));
  }
  return absl::OkStatus();
}

absl::Status PlanBy(Cli& cli, const PlanFlags& flags, Planner planner) {
  v1::PlanReshardRequest request;
  ASSIGN_OR_RETURN(*request.mutable_spec(), flags.spec.Read());
  request.set_explain(flags.explain);
  request.set_explain_relays(flags.explain_relays);
  return flags.all_strategies ? PlanAll(cli, std::move(request), planner)
                              : PlanOne(cli, request, planner);
}

absl::Status WriteFiles(const SimulationFiles& files, const LocalPlan& made) {
  if (!files.wanted()) return absl::OkStatus();
  ASSIGN_OR_RETURN(const SimulatedTimeline run,
                   Simulate(made.plan, made.topology, {.keep_transfers = true}));
  return files.Write(made.plan, made.topology, run);
}

// A controller answers with figures, not with the plan: it is made here once more, of the same
// objects, and drawn only if it is the same.
absl::Status WriteFilesOf(const v1::PlanReshardResponse& response, Client& client,
                          const v1::ReshardSpec& asked, const SimulationFiles& files) {
  if (!files.wanted()) return absl::OkStatus();
  ASSIGN_OR_RETURN(const v1::ReshardSpec spec, WithNamedObjects(client, asked));
  ASSIGN_OR_RETURN(const LocalPlan made,
                   At("--svg and --trace plan in this process", MakeLocalPlan(spec)));
  const std::string id = made.Summary().id();
  if (id == response.summary().id()) return WriteFiles(files, made);
  return absl::FailedPreconditionError(absl::StrCat(
      "--svg and --trace plan in this process: expected the controller's plan, ",
      response.summary().id(), ", found ", id,
      "; what the controller knows has changed meanwhile, or its version is another one"));
}

absl::Status RunPlan(Cli& cli, const PlanFlags& flags) {
  if (flags.files.wanted() && flags.all_strategies) {
    return absl::InvalidArgumentError(
        "--svg and --trace show one plan: expected no --all-strategies");
  }
  using Response = absl::StatusOr<v1::PlanReshardResponse>;
  if (!cli.has_controller()) {
    return PlanBy(cli, flags, [&flags](const v1::PlanReshardRequest& request) -> Response {
      ASSIGN_OR_RETURN(const LocalPlan made, MakeLocalPlan(request.spec()));
      RETURN_IF_ERROR(WriteFiles(flags.files, made));
      return ResponseOf(made, request);
    });
  }
  ASSIGN_OR_RETURN(Client client, cli.Connect());
  return PlanBy(cli, flags, [&](const v1::PlanReshardRequest& request) -> Response {
    ASSIGN_OR_RETURN(v1::PlanReshardResponse response, client.Plan(request));
    RETURN_IF_ERROR(WriteFilesOf(response, client, request.spec(), flags.files));
    return response;
  });
}

}  // namespace

void AddPlanCommand(Cli& cli, CLI::App& app) {
  CLI::App& command = cli.AddCommand(
      app, "plan", "Plans and proves a reshard without executing it",
      "  crossmesh plan --manifest examples/gpt2.json --source 'fsdp=4 on a.0,b.0,c.0,d.0' "
      "--source-rules examples/gpt2.fsdp.rules --destination 'replica=2,model=2 on e.0-1,f.0-1' "
      "--destination-rules examples/gpt2.tp.rules --replica-axes replica --all-strategies\n"
      "  crossmesh plan --request request.json --strategy broadcast_size --explain\n"
      "  crossmesh plan --request request.json --svg plan.svg --trace plan.trace.json\n"
      "Without a controller it plans in its own process; the machines need not exist.\n");
  const auto flags = std::make_shared<PlanFlags>();
  cli.AddControllerFlags(command);
  flags->spec.AddTo(command);
  AddFlag(command, "--all-strategies", flags->all_strategies, "Plan with each, and compare");
  AddFlag(command, "--explain", flags->explain, "Print the plan as well");
  AddOption(command, "--explain-relays", flags->explain_relays, "Relays listed (default 1000)");
  flags->files.AddTo(command);
  cli.Run(command, [&cli, flags] { return RunPlan(cli, *flags); });
}

}  // namespace crossmesh

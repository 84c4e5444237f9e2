#include "client/cli/cli.h"
#include "client/cli/explained_pairs.h"
#include "client/cli/local_spec.h"
#include "client/cli/options.h"
#include "client/cli/picture.h"
#include "client/cli/plan_report.h"
#include "client/cli/redistribution_program.h"
#include "client/cli/redistribution_report.h"
#include "client/cli/report_text.h"
#include "client/cli/reshard_run.h"
#include "client/cli/spec_flags.h"
#include "client/client.h"
#include "common/base/format.h"
#include "common/base/status_macros.h"
#include "common/plan/plan.h"

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>
#include <nlohmann/json.hpp>

namespace crossmesh {
namespace {

struct RedistributeFlags {
  // As of SQL's EXPLAIN: nothing is moved then, whatever storages are named.
  bool only_plans() const { return explain || !emit.empty() || !svg.empty(); }

  SpecFlags spec;
  ReshardRun run;
  int64_t staging = 0;
  bool explain = false;
  std::string emit;
  std::string svg;
};

std::string WorkersText(const PlanFigures& figures) {
  return ReportLine("workers", figures.search, "; predicted ",
                    FormatSeconds(figures.predicted_seconds));
}

// A program and a picture are of one pair.
absl::StatusOr<const ExplainedPair*> OnlyPair(const std::vector<ExplainedPair>& pairs) {
  if (pairs.size() == 1) return &pairs.front();
  return absl::InvalidArgumentError(
      absl::StrCat("--emit and --svg: expected one pair of layouts, found ", pairs.size(),
                   "; --explain prints all, and --shape instead of --manifest gives one"));
}

absl::Status Print(Cli& cli, const v1::ReshardSpec& spec, const std::vector<ExplainedPair>& pairs) {
  nlohmann::json documents = nlohmann::json::array();
  std::string text;
  for (const ExplainedPair& pair : pairs) {
    documents.push_back(pair.Document());
    absl::StrAppend(&text, text.empty() ? "" : "\n", pair.tensors, "\n", pair.Text());
  }
  ASSIGN_OR_RETURN(const LocalPlan made, MakeLocalPlan(spec));
  const v1::PlanSummary summary = made.Summary();
  return cli.Answer(nlohmann::json{{"summary", ToJson(summary)}, {"pairs", std::move(documents)}},
                    absl::StrCat(PlanSummaryText(summary), "\n", text));
}

// What workers would do is said beside the steps of one tensor. The search prices these as
// collectives, and workers route them as reshards.
absl::Status PrintOne(Cli& cli, const v1::ReshardSpec& spec, const ExplainedPair& pair) {
  nlohmann::json document = pair.Document();
  const absl::StatusOr<LocalPlan> made = MakeLocalPlan(spec);
  if (!made.ok()) {
    return cli.Answer(
        document, absl::StrCat(pair.Text(), "\n", ReportLine("workers", made.status().message())));
  }
  const v1::PlanSummary summary = made->Summary();
  document["summary"] = ToJson(summary);
  return cli.Answer(document, absl::StrCat(pair.Text(), "\n", WorkersText(made->plan.figures())));
}

absl::Status Explain(Cli& cli, const RedistributeFlags& flags, v1::ReshardSpec spec) {
  StepLimits limits{.staging = {.bytes = flags.staging}};
  // Of one tensor there need not be storages: its arrays live from step to step.
  const bool is_by_steps = flags.spec.is_one_tensor();
  if (is_by_steps && spec.device_bytes_max() > 0) {
    limits.live_bytes_max = spec.device_bytes_max();
    spec.clear_device_bytes_max();
  }
  ASSIGN_OR_RETURN(const LocalRequest request, MakeLocalRequest(spec));
  ASSIGN_OR_RETURN(const std::vector<ExplainedPair> pairs, ExplainPairs(request.reshard, limits));
  if (!flags.emit.empty()) {
    ASSIGN_OR_RETURN(const ExplainedPair* const pair, OnlyPair(pairs));
    ASSIGN_OR_RETURN(const std::string program, EmitProgram(pair->derivation, flags.emit));
    cli.Print(program);
    return absl::OkStatus();
  }
  if (!flags.svg.empty()) {
    ASSIGN_OR_RETURN(const ExplainedPair* const pair, OnlyPair(pairs));
    RETURN_IF_ERROR(DrawPicture(RedistributionPicture(pair->derivation, pair->cap, pair->baselines),
                                flags.svg));
  }
  if (is_by_steps) return PrintOne(cli, spec, pairs.front());
  return Print(cli, spec, pairs);
}

absl::Status ShowDerivation(Cli& cli, const RedistributeFlags& flags, v1::ReshardSpec spec) {
  if (flags.run.is_given()) {
    return absl::InvalidArgumentError(
        "--request-id and --detach: expected --source-storage and --destination-storage, and none "
        "of --explain, --emit and --svg");
  }
  if (cli.has_controller()) {
    ASSIGN_OR_RETURN(Client client, cli.Connect());
    ASSIGN_OR_RETURN(spec, WithNamedObjects(client, std::move(spec)));
  }
  if (flags.only_plans() || flags.spec.is_one_tensor()) return Explain(cli, flags, std::move(spec));
  ASSIGN_OR_RETURN(const LocalPlan made, MakeLocalPlan(spec));
  const v1::PlanSummary summary = made.Summary();
  return cli.Answer(summary, PlanSummaryText(summary));
}

absl::Status Redistribute(Cli& cli, const RedistributeFlags& flags) {
  ASSIGN_OR_RETURN(v1::ReshardSpec spec, flags.spec.Read());
  const bool has_storages =
      !spec.source().storage().empty() || !spec.destination().storage().empty();
  if (flags.only_plans() || !has_storages) return ShowDerivation(cli, flags, std::move(spec));
  return flags.run.Run(cli, spec, "redistribute");
}

constexpr char kExamples[] =
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
    "  crossmesh redistribute --mesh trainer --manifest gpt2 --source-rules gpt2.fsdp.rules \\\n"
    "      --destination-rules gpt2.tp.rules --explain\n"
    "  crossmesh redistribute --mesh trainer --manifest gpt2 --source-rules gpt2.fsdp.rules \\\n"
    "      --destination-rules gpt2.tp.rules --source-storage weights \\\n"
    "      --destination-storage generation --create-destination --cap 40000000000\n"
    "Where storages are named it runs, as `crossmesh reshard` does; --explain, --emit and --svg "
    "plan only. Without storages nothing is moved: steps are proven on every device.\n";

}  // namespace

void AddRedistributeCommand(Cli& cli, CLI::App& app) {
  CLI::App& command = cli.AddCommand(
      app, "redistribute",
      "Changes the layout of tensors inside a mesh: plans, explains and runs the steps, within a "
      "cap of memory",
      kExamples);
  const auto flags = std::make_shared<RedistributeFlags>();
  cli.AddControllerFlags(command);
  flags->spec.AddInsideMeshTo(command);
  flags->spec.AddExecutionTo(command);
  flags->run.AddTo(command);
  AddOption(command, "--staging-bytes", flags->staging,
            "That each step which communicates takes, under the cap of --shape")
      .NotNegative();
  AddFlag(command, "--explain", flags->explain,
          "Print the steps of every distinct pair of layouts beside what others do");
  AddOption(command, "--emit", flags->emit,
            "Print a Python program of a framework's own collectives")
      .OneOf({"torch", "jax"});
  AddOption(command, "--svg", flags->svg,
            "Draw the steps, and memory over time, beside what others do: .svg, .png or .pdf");
  cli.Run(command, [&cli, flags] { return Redistribute(cli, *flags); });
}

}  // namespace crossmesh

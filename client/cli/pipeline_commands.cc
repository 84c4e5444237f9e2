#include "client/cli/cli.h"
#include "client/cli/options.h"
#include "client/cli/picture.h"
#include "client/cli/pipeline_flags.h"
#include "client/cli/pipeline_picture.h"
#include "client/cli/pipeline_report.h"
#include "common/base/clock.h"
#include "common/base/status_macros.h"
#include "planner/pipeline/formats/pipeline_trace.h"
#include "planner/pipeline/formats/schedule_file.h"
#include "planner/pipeline/planning/planned_pipeline.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>
#include <absl/time/time.h>
#include <nlohmann/json.hpp>

namespace crossmesh {
namespace {

// Files to see a schedule in, or to keep it.
struct PipelineFiles {
  std::string svg;
  std::string trace;
  std::string schedule;

  void AddTo(CLI::App& command) {
    AddOption(command, "--svg", svg, "Draw the run to this file: .svg, .png or .pdf");
    AddOption(command, "--trace", trace, "Write the run in Chrome's trace format to this file");
    AddOption(command, "--output", schedule, "Write the schedule to this file, for --schedule");
  }

  absl::Status Write(const PlannedPipeline& planned) const {
    if (!svg.empty()) {
      RETURN_IF_ERROR(DrawPicture(
          PipelinePicture(
              {{.title = planned.schedule_name, .ops = planned.ops.get(), .run = &planned.run}}),
          svg));
    }
    if (!trace.empty()) {
      RETURN_IF_ERROR(WriteFile(trace, PipelineTrace(*planned.ops, planned.run).dump() + "\n"));
    }
    if (schedule.empty()) return absl::OkStatus();
    ASSIGN_OR_RETURN(const std::string text, ToScheduleFile(*planned.ops));
    return WriteFile(schedule, text);
  }
};

struct PipelinePlanFlags {
  PipelineFlags pipeline;
  PipelineFiles files;
};

absl::Status ShowPlan(Cli& cli, const PipelinePlanFlags& flags, bool explain) {
  ASSIGN_OR_RETURN(PipelineDescription description, flags.pipeline.ReadDescription());
  ASSIGN_OR_RETURN(const v1::PipelineChoice choice, flags.pipeline.Choice());
  const RealClock clock;
  const absl::Duration begin = clock.Monotonic();
  ASSIGN_OR_RETURN(const auto planned, PlanPipeline(std::move(description), choice));
  const double seconds = absl::ToDoubleSeconds(clock.Monotonic() - begin);
  RETURN_IF_ERROR(flags.files.Write(*planned));
  v1::PipelinePlan summary = planned->Summary();
  summary.set_plan_seconds(seconds);
  return cli.Answer(
      summary, PipelinePlanText(summary) + (explain ? "\n" + PipelineExplanation(summary) : ""));
}

absl::Status Compare(Cli& cli, const PipelineFlags& flags) {
  ASSIGN_OR_RETURN(const PipelineDescription description, flags.ReadDescription());
  ASSIGN_OR_RETURN(const v1::PipelineChoice choice, flags.Choice());
  ASSIGN_OR_RETURN(const std::vector<v1::PipelineCandidate> found,
                   ComparePipelineSchedules(description, choice));
  ASSIGN_OR_RETURN(const auto planned, PlanPipeline(description, choice));
  // With the list: what every schedule puts on the network.
  v1::PipelinePlan all;
  const v1::PipelinePlan summary = planned->Summary();
  all.set_pipeline(summary.pipeline());
  all.set_busiest_port(summary.busiest_port());
  all.set_busiest_port_bytes(summary.busiest_port_bytes());
  for (const v1::PipelineCandidate& candidate : found) *all.add_candidates() = candidate;
  return cli.Answer(all, ComparisonTable(all));
}

absl::Status Draw(Cli& cli, const PipelineFlags& flags, const std::string& svg) {
  ASSIGN_OR_RETURN(const PipelineDescription description, flags.ReadDescription());
  ASSIGN_OR_RETURN(const std::vector<v1::PipelineChoice> choices, flags.Choices());
  std::vector<std::shared_ptr<const PlannedPipeline>> planned;
  std::vector<DrawnPipeline> drawn;
  for (const v1::PipelineChoice& choice : choices) {
    ASSIGN_OR_RETURN(planned.emplace_back(), PlanPipeline(description, choice));
    const PlannedPipeline& one = *planned.back();
    drawn.push_back({.title = one.schedule_name, .ops = one.ops.get(), .run = &one.run});
  }
  RETURN_IF_ERROR(DrawPicture(PipelinePicture(drawn), svg));
  return cli.Answer(nlohmann::json{{"file", svg}}, absl::StrCat("Drawn to ", svg, "\n"));
}

void AddPlanCommands(Cli& cli, CLI::App& group) {
  for (const bool explain : {false, true}) {
    CLI::App& command = cli.AddCommand(
        group, explain ? "explain" : "plan",
        explain ? "What plan says, with the ops of every rank and what the search has looked at"
                : "Plans the transfers of a pipeline and its schedule, and proves them",
        absl::StrCat(
            "  crossmesh pipeline ", explain ? "explain" : "plan",
            " examples/pipeline.json --schedule auto --delay-weight-gradients --svg run.svg\n"));
    const auto flags = std::make_shared<PipelinePlanFlags>();
    flags->pipeline.AddTo(command);
    flags->files.AddTo(command);
    cli.Run(command, [&cli, flags, explain] { return ShowPlan(cli, *flags, explain); });
  }
}

void AddCompareCommand(Cli& cli, CLI::App& group) {
  CLI::App& command = cli.AddCommand(group, "compare", "Every schedule of a pipeline side by side",
                                     "  crossmesh pipeline compare examples/pipeline.json\n");
  const auto flags = std::make_shared<PipelineFlags>();
  flags->AddTo(command);
  cli.Run(command, [&cli, flags] { return Compare(cli, *flags); });
}

void AddDrawCommand(Cli& cli, CLI::App& group) {
  CLI::App& command =
      cli.AddCommand(group, "draw", "Draws one schedule, or several one below the other",
                     "  crossmesh pipeline draw examples/pipeline.json --schedule 1f1b --schedule "
                     "eager_1f1b --svg pipeline.svg\n");
  const auto flags = std::make_shared<PipelineFlags>();
  flags->AddTo(command, {.one_schedule = false});
  const auto svg = std::make_shared<std::string>("pipeline.svg");
  AddOption(command, "--svg", *svg, "The file: .svg, .png or .pdf").ShowDefault();
  cli.Run(command, [&cli, flags, svg] { return Draw(cli, *flags, *svg); });
}

}  // namespace

void AddPipelineCommands(Cli& cli, CLI::App& app) {
  CLI::App& group =
      cli.AddGroup(app, "pipeline", "Plans, draws, registers, rehearses and runs pipelines");
  AddPlanCommands(cli, group);
  AddCompareCommand(cli, group);
  AddDrawCommand(cli, group);
  AddPipelineConvertCommand(cli, group);
  AddPipelineRegistryCommands(cli, group);
  AddPipelineRunCommands(cli, group);
}

}  // namespace crossmesh

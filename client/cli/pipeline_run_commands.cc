#include "client/cli/cli.h"
#include "client/cli/measured_run.h"
#include "client/cli/pipeline_flags.h"
#include "client/cli/pipeline_run_report.h"
#include "client/cli/progress.h"
#include "client/drawing/pipeline_drawing.h"
#include "common/base/clock.h"
#include "common/base/status_macros.h"
#include "common/wire/time_codec.h"
#include "controller/pipeline/planning/pipeline_codec.h"
#include "controller/pipeline/planning/planned_pipeline.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>
#include <absl/strings/string_view.h>

namespace crossmesh {
namespace {

constexpr int64_t kRehearsedDefault = 3;
constexpr int64_t kListedDefault = 20;

struct RunFlags {
  PipelineFlags pipeline;
  std::string registered;
  int64_t iterations = kRehearsedDefault;
  std::string request_id;
  bool no_checksums = false;
  bool stop_at_failure = false;
  double iteration_deadline = 0;
  double stall_limit = 0;
  double rejoin_limit = 0;
  std::string svg;
  std::string times;

  void AddTo(CLI::App& command, bool rehearsal) {
    CLI::Option* const file = pipeline.AddOptionalTo(command);
    command.add_option("--pipeline", registered, "A registered pipeline, in place of a file")
        ->excludes(file);
    CLI::Option* const count = command.add_option("--iterations", iterations, "How often");
    if (rehearsal) {
      count->capture_default_str();
    } else {
      count->required();
    }
    command.add_option("--request-id", request_id,
                       "Names this request: given again, it is the same run");
    command.add_flag("--no-checksums", no_checksums, "Transfers are not checked");
    command.add_flag("--stop-at-failure", stop_at_failure,
                     "Ends with the first iteration that fails");
    command.add_option("--iteration-deadline", iteration_deadline,
                       "Seconds after which an iteration has failed (3 x prediction + 30 s)");
    command.add_option("--stall-limit", stall_limit,
                       "Seconds after which a worker that answers nothing is lost (5)");
    command.add_option("--rejoin-limit", rejoin_limit,
                       "Seconds that a failed iteration waits for its workers (30)");
    command.add_option("--svg", svg, "Draw the last iteration beside the planned one");
    if (!rehearsal) return;
    command.add_option("--write-times", times,
                       "Write the pipeline with the measured times of its edges to this file");
  }
};

absl::StatusOr<v1::StartPipelineRequest> RequestOf(const RunFlags& flags, bool rehearsal) {
  v1::StartPipelineRequest request;
  if (!flags.registered.empty()) {
    request.set_pipeline(flags.registered);
  } else if (!flags.pipeline.file().empty()) {
    ASSIGN_OR_RETURN(*request.mutable_inline_pipeline(), flags.pipeline.ReadSpec());
  } else {
    return absl::InvalidArgumentError("pipeline: expected a file or --pipeline, found neither");
  }
  ASSIGN_OR_RETURN(*request.mutable_choice(), flags.pipeline.Choice());
  request.set_request_id(flags.request_id.empty() ? NewRequestId() : flags.request_id);
  request.set_iterations(flags.iterations);
  request.set_rehearsal(rehearsal);
  if (flags.no_checksums) request.set_checksums(false);
  request.set_stop_at_failure(flags.stop_at_failure);
  const auto set = [](double seconds, google::protobuf::Duration* (v1::StartPipelineRequest::*at)(),
                      v1::StartPipelineRequest& to) {
    if (seconds > 0) *(to.*at)() = ToProto(absl::Seconds(seconds));
  };
  set(flags.iteration_deadline, &v1::StartPipelineRequest::mutable_iteration_deadline, request);
  set(flags.stall_limit, &v1::StartPipelineRequest::mutable_stall_limit, request);
  set(flags.rejoin_limit, &v1::StartPipelineRequest::mutable_rejoin_limit, request);
  return request;
}

absl::StatusOr<v1::PipelineSpec> SpecOf(Client& client, const v1::StartPipelineRequest& request) {
  if (request.has_inline_pipeline()) return request.inline_pipeline();
  return client.GetPipeline(request.pipeline());
}

// The plan that the controller made, made again: with the meshes that it has under names, and its
// network. FailedPrecondition when these have changed meanwhile.
absl::StatusOr<std::shared_ptr<const PlannedPipeline>> PlanAgain(Client& client,
                                                                 v1::PipelineSpec spec,
                                                                 const v1::PipelineChoice& choice,
                                                                 const v1::PipelinePlan& made) {
  for (v1::PipelineRank& rank : *spec.mutable_ranks()) {
    if (!rank.has_mesh()) continue;
    ASSIGN_OR_RETURN(const v1::GetMeshResponse mesh, client.GetMesh(rank.mesh()));
    *rank.mutable_inline_mesh() = mesh.mesh();
  }
  if (!spec.has_topology()) {
    ASSIGN_OR_RETURN(const v1::Network network, client.GetNetwork());
    *spec.mutable_topology() = network.topology();
  }
  ASSIGN_OR_RETURN(PipelineDescription description,
                   FromProto(spec, std::vector<std::shared_ptr<const Mesh>>(spec.ranks_size())));
  ASSIGN_OR_RETURN(std::shared_ptr<const PlannedPipeline> planned,
                   PlanPipeline(std::move(description), choice));
  if (planned->id.ToString() == made.id()) return planned;
  return absl::FailedPreconditionError(
      absl::StrCat("plan ", made.id(), ": expected to make it again, found ",
                   planned->id.ToString(), ": meshes, network or version are others"));
}

absl::Status Draw(Client& client, const RunFlags& flags, const v1::StartPipelineRequest& request,
                  const v1::PipelineRun& run) {
  if (flags.svg.empty() || run.measurement().ranks().empty()) return absl::OkStatus();
  ASSIGN_OR_RETURN(v1::PipelineSpec spec, SpecOf(client, request));
  ASSIGN_OR_RETURN(const auto planned,
                   PlanAgain(client, std::move(spec), request.choice(), run.plan()));
  ASSIGN_OR_RETURN(const PipelineRun measured, MeasuredRun(*planned->ops, run.measurement()));
  return WriteFile(flags.svg, DrawPipelines({{.title = planned->schedule_name,
                                              .ops = planned->ops.get(),
                                              .run = &planned->run,
                                              .measured = &measured}}));
}

// Those of the first size of microbatches, which the specification is about.
absl::Status WriteTimes(Client& client, const RunFlags& flags,
                        const v1::StartPipelineRequest& request, const v1::PipelineRun& run) {
  if (flags.times.empty() || run.measurement().channels().empty()) return absl::OkStatus();
  ASSIGN_OR_RETURN(v1::PipelineSpec spec, SpecOf(client, request));
  for (const v1::PipelineMeasurement::Channel& channel : run.measurement().channels()) {
    if (channel.samples() != spec.microbatches(0).samples()) continue;
    v1::PipelineEdge& edge = *spec.mutable_edges(channel.edge());
    if (channel.backward()) {
      edge.set_backward_seconds(channel.transfer_seconds());
    } else {
      edge.set_forward_seconds(channel.transfer_seconds());
    }
  }
  return WriteFile(flags.times, ToJson(spec).dump(2) + "\n");
}

void Print(Cli& cli, const v1::PipelineRun& run) {
  if (cli.json()) {
    cli.PrintDocument(run);
  } else {
    cli.Print(PipelineRunText(run));
  }
}

absl::Status Run(Cli& cli, const RunFlags& flags, bool rehearsal) {
  ASSIGN_OR_RETURN(const v1::StartPipelineRequest request, RequestOf(flags, rehearsal));
  ASSIGN_OR_RETURN(Client client, cli.Connect());
  const RealClock clock;
  Progress progress(rehearsal ? "rehearse" : "run", "iterations", flags.iterations,
                    Progress::FormFor(cli.json()), clock);
  int64_t tried = 0;
  const absl::StatusOr<v1::PipelineRun> run =
      client.StartPipeline(request, [&](const v1::PipelineRun& now) {
        if (!now.done().empty()) tried = now.done().rbegin()->index() + 1;
        progress.Update(tried, StateName(now.state()));
      });
  RETURN_IF_ERROR(run.status());
  progress.Finish(absl::StrCat(run->id(), ": ", StateName(run->state())));
  Print(cli, *run);
  RETURN_IF_ERROR(Draw(client, flags, request, *run));
  RETURN_IF_ERROR(WriteTimes(client, flags, request, *run));
  return OutcomeOf(*run);
}

struct ShowFlags {
  std::string id;
  int64_t count = kListedDefault;
  bool now = false;
};

absl::Status Show(Cli& cli, const ShowFlags& flags) {
  ASSIGN_OR_RETURN(Client client, cli.Connect());
  if (!flags.id.empty()) {
    ASSIGN_OR_RETURN(const v1::PipelineRun run, client.GetPipelineRun(flags.id));
    Print(cli, run);
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(const std::vector<v1::PipelineRun> runs, client.ListPipelineRuns(flags.count));
  if (!cli.json()) {
    cli.Print(PipelineRunTable(runs));
    return absl::OkStatus();
  }
  nlohmann::json document = {{"runs", nlohmann::json::array()}};
  for (const v1::PipelineRun& run : runs) document["runs"].push_back(ToJson(run));
  cli.PrintDocument(document);
  return absl::OkStatus();
}

absl::Status Stop(Cli& cli, const ShowFlags& flags) {
  ASSIGN_OR_RETURN(Client client, cli.Connect());
  RETURN_IF_ERROR(client.StopPipelineRun(flags.id, flags.now));
  if (cli.json()) {
    cli.PrintDocument({{"stopping", flags.id}});
  } else {
    cli.Print(absl::StrCat("pipeline run ", flags.id, " stops ",
                           flags.now ? "now\n" : "behind the iteration that runs\n"));
  }
  return absl::OkStatus();
}

void AddRunCommand(Cli& cli, CLI::App& group, bool rehearsal) {
  CLI::App& command = cli.AddCommand(
      group, rehearsal ? "rehearse" : "run",
      rehearsal ? "Runs a pipeline whose ops only take their time, while real tensors move"
                : "Runs a pipeline whose ops the workers' processes compute",
      rehearsal ? "  crossmesh pipeline rehearse pipeline.json --iterations 5 --svg run.svg\n"
                  "  crossmesh pipeline rehearse pipeline.json --write-times measured.json\n"
                  "Interrupting it does not end the run; `crossmesh pipeline stop` does.\n"
                : "  crossmesh pipeline run --pipeline u-net --schedule eager_1f1b --iterations "
                  "1000\n"
                  "Interrupting it does not end the run; `crossmesh pipeline stop` does.\n");
  const auto flags = std::make_shared<RunFlags>();
  cli.AddControllerFlags(command);
  flags->AddTo(command, rehearsal);
  cli.Run(command, [&cli, flags, rehearsal] { return Run(cli, *flags, rehearsal); });
}

}  // namespace

void AddPipelineRunCommands(Cli& cli, CLI::App& group) {
  AddRunCommand(cli, group, /*rehearsal=*/true);
  AddRunCommand(cli, group, /*rehearsal=*/false);
  const auto flags = std::make_shared<ShowFlags>();

  CLI::App& show = cli.AddCommand(group, "show", "Shows a run as it is now, or lists all",
                                  "  crossmesh pipeline show pr-0123456789abcdef\n");
  show.add_option("id", flags->id, "The run's id; none: all, newest first");
  show.add_option("--count", flags->count, "At most so many")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  cli.Run(show, [&cli, flags] { return Show(cli, *flags); });

  CLI::App& stop = cli.AddCommand(group, "stop", "Stops a run behind the iteration that runs",
                                  "  crossmesh pipeline stop pr-0123456789abcdef --now\n");
  stop.add_option("id", flags->id, "The run's id")->required();
  stop.add_flag("--now", flags->now, "Gives up the iteration that runs");
  cli.Run(stop, [&cli, flags] { return Stop(cli, *flags); });

  for (CLI::App* command : {&show, &stop}) cli.AddControllerFlags(*command);
}

}  // namespace crossmesh

#include "client/cli/cli.h"
#include "client/cli/listing.h"
#include "client/cli/measured_times.h"
#include "client/cli/options.h"
#include "client/cli/picture.h"
#include "client/cli/pipeline_run_flags.h"
#include "client/cli/pipeline_run_report.h"
#include "client/cli/progress.h"
#include "client/cli/run_interrupts.h"
#include "client/cli/run_picture.h"
#include "client/client.h"
#include "common/base/check.h"
#include "common/base/clock.h"
#include "common/base/status_macros.h"

#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <absl/strings/str_cat.h>
#include <google/protobuf/util/json_util.h>
#include <nlohmann/json.hpp>

namespace crossmesh {
namespace {

// As people write it: camel case, and no fields without a value.
std::string ToFile(const v1::PipelineSpec& spec) {
  google::protobuf::util::JsonPrintOptions options;
  options.add_whitespace = true;
  std::string text;
  const auto status = google::protobuf::util::MessageToJsonString(spec, &text, options);
  CHECK(status.ok()) << status.ToString();
  return text;
}

// Writes what was asked for of a run that has ended.
absl::Status WriteFiles(Client& client, const PipelineRunFlags& flags,
                        const v1::StartPipelineRequest& request, const v1::PipelineRun& run) {
  if (flags.svg().empty() && flags.times().empty()) return absl::OkStatus();
  v1::PipelineSpec spec = request.inline_pipeline();
  if (!request.pipeline().empty()) {
    ASSIGN_OR_RETURN(spec, client.GetPipeline(request.pipeline()));
  }
  if (!flags.svg().empty()) {
    ASSIGN_OR_RETURN(const v1::PipelineSpec described, Described(client, spec));
    ASSIGN_OR_RETURN(const std::string picture, MeasuredPicture(described, request.choice(), run));
    RETURN_IF_ERROR(DrawPicture(picture, flags.svg()));
  }
  if (flags.times().empty()) return absl::OkStatus();
  RETURN_IF_ERROR(SetMeasuredTimes(run, spec));
  return WriteFile(flags.times(), ToFile(spec));
}

std::string StateOf(const v1::PipelineRun& run) {
  std::string text = StateName(run.state());
  if (run.failed_iterations() > 0) absl::StrAppend(&text, ", ", run.failed_iterations(), " failed");
  return text;
}

void StopAsAsked(Client& client, const std::string& id, bool now) {
  std::cerr << (now ? "\nstopping it at once\n"
                    : "\nstopping after this iteration; interrupt again to stop at once\n");
  const absl::Status stopped = client.StopPipelineRun(id, now);
  if (!stopped.ok())
    std::cerr << "crossmesh: pipeline run " << id << ": " << stopped.message() << "\n";
}

absl::Status Run(Cli& cli, const PipelineRunFlags& flags) {
  ASSIGN_OR_RETURN(const v1::StartPipelineRequest request, flags.Request());
  if (!flags.svg().empty()) RETURN_IF_ERROR(CheckPicture(flags.svg()));
  // Signals are to be blocked before a connection has threads.
  std::optional<Client> client;
  ASSIGN_OR_RETURN(const std::unique_ptr<RunInterrupts> interrupts,
                   RunInterrupts::Handle([&client](const std::string& id, bool now) {
                     StopAsAsked(*client, id, now);
                   }));
  ASSIGN_OR_RETURN(client, cli.Connect());
  const RealClock clock;
  Progress progress(request.rehearsal() ? "rehearsal" : "run", request.iterations(),
                    Progress::FormFor(cli.json()), clock);
  progress.CountIn("iterations");
  const auto on_change = [&](const v1::PipelineRun& now) {
    interrupts->Found(now.id());
    progress.Update(IterationsTried(now), StateOf(now));
  };
  ASSIGN_OR_RETURN(const v1::PipelineRun run, client->StartPipeline(request, on_change));
  progress.Finish(absl::StrCat(run.id(), ": ", StateOf(run)));
  RETURN_IF_ERROR(cli.Answer(run, PipelineRunText(run)));
  // Files of a run that failed are of use as well; its own error comes first.
  const absl::Status outcome = OutcomeOf(run);
  cli.SetExitCode(run.state() == v1::PIPELINE_RUN_STATE_STOPPED ? ExitCode::kCancelled
                                                                : ExitCode::kFailed);
  const absl::Status written = WriteFiles(*client, flags, request, run);
  return outcome.ok() ? written : outcome;
}

struct RunListFlags {
  std::string id;
  int64_t count = kListedDefault;
  bool now = false;
  bool watch = false;
  bool wait = false;
};

absl::Status ListRuns(Cli& cli, const RunListFlags& flags) {
  RETURN_IF_ERROR(CheckCount(flags.count));
  ASSIGN_OR_RETURN(Client client, cli.Connect());
  const auto list = [&]() -> absl::StatusOr<Listing> {
    ASSIGN_OR_RETURN(const std::vector<v1::PipelineRun> runs, client.ListPipelineRuns(flags.count));
    return PipelineRunListing(cli, runs);
  };
  if (flags.watch) return WatchListing(cli, {.list = list, .tells_gone = false});
  ASSIGN_OR_RETURN(const Listing listing, list());
  return AnswerListing(cli, listing);
}

// A line for every change of one run, until it has ended.
absl::Status WatchRun(Cli& cli, const std::string& id) {
  ASSIGN_OR_RETURN(Client client, cli.Connect());
  if (cli.json()) {
    return client
        .WatchPipelineRun(id,
                          [&cli](const v1::PipelineRun& now) {
                            cli.PrintEvent({{"run", ToJson(now)}}, HasEnded(now));
                          })
        .status();
  }
  const RealClock clock;
  Progress progress(id, 0, Progress::FormFor(cli.names()), clock);
  progress.CountIn("iterations");
  ASSIGN_OR_RETURN(const v1::PipelineRun run,
                   client.WatchPipelineRun(id, [&](const v1::PipelineRun& now) {
                     progress.SetTotal(now.iterations());
                     progress.Update(IterationsTried(now), StateOf(now));
                   }));
  progress.Finish(absl::StrCat(run.id(), ": ", StateOf(run)));
  return cli.AnswerNamed(run.id(), run, PipelineRunText(run));
}

absl::Status Show(Cli& cli, const RunListFlags& flags) {
  if (flags.id.empty()) return ListRuns(cli, flags);
  if (flags.watch) return WatchRun(cli, flags.id);
  ASSIGN_OR_RETURN(Client client, cli.Connect());
  ASSIGN_OR_RETURN(const v1::PipelineRun run, client.GetPipelineRun(flags.id));
  return cli.AnswerNamed(run.id(), run, PipelineRunText(run));
}

absl::Status Stop(Cli& cli, const RunListFlags& flags) {
  ASSIGN_OR_RETURN(Client client, cli.Connect());
  // What has ended stays as it is, and the controller's answer does not tell.
  ASSIGN_OR_RETURN(const v1::PipelineRun run, client.GetPipelineRun(flags.id));
  if (HasEnded(run)) {
    return absl::FailedPreconditionError(absl::StrCat("pipeline run ", flags.id,
                                                      ": expected one that runs, found it ",
                                                      StateName(run.state()), " already"));
  }
  RETURN_IF_ERROR(client.StopPipelineRun(flags.id, flags.now));
  if (flags.wait) {
    ASSIGN_OR_RETURN(const v1::PipelineRun ended,
                     client.WatchPipelineRun(flags.id, [](const v1::PipelineRun&) {}));
    return cli.Answer(ended, PipelineRunText(ended));
  }
  return cli.Answer({{"stopping", flags.id}},
                    absl::StrCat("pipeline run ", flags.id, " ends ",
                                 flags.now ? "at once" : "after its iteration", "\n"));
}

void AddRunCommand(Cli& cli, CLI::App& group, bool rehearsal) {
  CLI::App& command = cli.AddCommand(
      group, rehearsal ? "rehearse" : "run",
      rehearsal ? "Runs a pipeline on its workers with ops that only pass the time, and measures it"
                : "Runs a pipeline on its workers, by the processes that compute its ops",
      rehearsal ? "  crossmesh pipeline rehearse examples/pipeline.json --svg run.svg\n"
                  "  crossmesh pipeline rehearse --pipeline u-net --write-times measured.json\n"
                  "Interrupting it ends the run after its iteration, a second time at once.\n"
                : "  crossmesh pipeline run --pipeline u-net --schedule auto --iterations 1000\n"
                  "  crossmesh pipeline run --pipeline u-net --iterations 9 --write-times "
                  "measured.json\n"
                  "Interrupting it ends the run after its iteration, a second time at once.\n");
  const auto flags = std::make_shared<PipelineRunFlags>(rehearsal);
  cli.AddControllerFlags(command);
  flags->AddTo(command);
  cli.Run(command, [&cli, flags] { return Run(cli, *flags); });
}

}  // namespace

void AddPipelineRunCommands(Cli& cli, CLI::App& group) {
  AddRunCommand(cli, group, /*rehearsal=*/true);
  AddRunCommand(cli, group, /*rehearsal=*/false);
  const auto flags = std::make_shared<RunListFlags>();

  CLI::App& show = cli.AddCommand(group, "show", "Shows a run as it is now, or lists all",
                                  "  crossmesh pipeline show\n"
                                  "  crossmesh pipeline show pr-0123456789abcdef\n"
                                  "  crossmesh pipeline show pr-0123456789abcdef --watch\n");
  cli.AddOutputFlag(show);
  AddFlag(show, "-w,--watch", flags->watch, absl::StrCat(kWatchHelp, "; one run, to its end"));
  AddOption(show, "id", flags->id, "The run's id; without it, all runs, newest first");
  AddOption(show, "--count", flags->count, "Of a list, at most so many").ShowDefault();
  cli.Run(show, [&cli, flags] { return Show(cli, *flags); });

  CLI::App& stop = cli.AddCommand(group, "stop", "Asks for a run's end",
                                  "  crossmesh pipeline stop pr-0123456789abcdef\n");
  AddOption(stop, "id", flags->id, "The run's id").Required();
  AddFlag(stop, "--now", flags->now, "At once, not after the iteration that runs");
  AddFlag(stop, "--wait", flags->wait, "Until it has ended");
  cli.Run(stop, [&cli, flags] { return Stop(cli, *flags); });

  for (CLI::App* command : {&show, &stop}) cli.AddControllerFlags(*command);
}

}  // namespace crossmesh

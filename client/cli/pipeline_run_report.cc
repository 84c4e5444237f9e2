#include "client/cli/pipeline_run_report.h"

#include "client/cli/layer_exposures_report.h"
#include "client/cli/report_text.h"
#include "client/outcome.h"
#include "common/base/count_text.h"
#include "common/base/format.h"
#include "common/base/table.h"
#include "planner/pipeline/op.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>
#include <absl/strings/str_join.h>
#include <absl/strings/str_split.h>

namespace crossmesh {
namespace {

constexpr int kErrorsShown = 5;

std::string Seconds(std::optional<double> seconds) {
  return seconds.has_value() ? FormatSeconds(*seconds) : "-";
}

// "+3.2 %" where it took longer than predicted.
std::string Deviation(std::optional<double> predicted, std::optional<double> measured) {
  if (!predicted.has_value() || !measured.has_value() || *predicted <= 0) return "-";
  return absl::StrFormat("%+.1f %%", 100 * (*measured / *predicted - 1));
}

bool HasMedian(const v1::PipelineRun& run) { return run.median_seconds() > 0; }

int64_t IterationsComplete(const v1::PipelineRun& run) {
  return IterationsTried(run) - run.failed_iterations();
}

std::string FailureLines(const v1::PipelineRun& run) {
  std::vector<const v1::PipelineIteration*> failed;
  for (const v1::PipelineIteration& iteration : run.done()) {
    if (!iteration.error().empty() || iteration.error_code() != 0) failed.push_back(&iteration);
  }
  if (failed.empty()) return "";
  // Of a long run only the last iterations are told, so more may have failed than are here.
  const size_t shown = std::min<size_t>(failed.size(), kErrorsShown);
  std::string text = shown < static_cast<size_t>(run.failed_iterations())
                         ? absl::StrCat("\nThe last ", CountText(shown, "iteration", "iterations"),
                                        " that failed:\n")
                         : "\nIterations that failed:\n";
  for (size_t i = failed.size() - shown; i < failed.size(); ++i) {
    absl::StrAppend(
        &text, "  iteration ", failed[i]->index(), ", ",
        absl::StatusCodeToString(static_cast<absl::StatusCode>(failed[i]->error_code())), "\n");
    // The cause, and after it where each rank was.
    for (const absl::string_view line : absl::StrSplit(failed[i]->error(), "; ")) {
      absl::StrAppend(&text, "    ", line, "\n");
    }
  }
  return text;
}

// "0, 3": the stages whose ops a rank computes.
std::string StagesOf(const v1::PipelinePlan& plan, int rank) {
  std::set<StageIndex> stages;
  if (rank < plan.rank_ops_size()) {
    for (const absl::string_view text :
         absl::StrSplit(plan.rank_ops(rank), ' ', absl::SkipEmpty())) {
      const absl::StatusOr<Op> op = ParseOp(text);
      if (op.ok()) stages.insert(op->stage);
    }
  }
  return stages.empty() ? "-" : absl::StrJoin(stages, ", ");
}

std::string RankTable(const v1::PipelineRun& run) {
  const std::map<int, double> busy = MeasuredBusy(run.measurement());
  TextTable table({"RANK>", "STAGES", "BUSY: PREDICTED>", "MEASURED>", "DEVIATION>"});
  for (int rank = 0; rank < run.plan().ranks_size(); ++rank) {
    const double predicted = run.plan().ranks(rank).busy_seconds();
    const auto found = busy.find(rank);
    const auto measured = found == busy.end() ? std::nullopt : std::optional<double>(found->second);
    table.AddRow({absl::StrCat(rank), StagesOf(run.plan(), rank), FormatSeconds(predicted),
                  Seconds(measured), Deviation(predicted, measured)});
  }
  return table.row_count() == 0 ? "" : absl::StrCat("\n", table.ToString());
}

// One direction of an edge, for microbatches of one size.
using WayKey = std::tuple<int32_t, bool, int64_t>;

struct WayTimes {
  std::optional<double> predicted;
  const v1::PipelineMeasurement::Transfer* measured = nullptr;
};

std::string TransferTable(const v1::PipelineRun& run) {
  std::map<WayKey, WayTimes> ways;
  for (const v1::PipelineTransferSummary& transfer : run.plan().transfers()) {
    ways[{transfer.edge(), transfer.backward(), transfer.samples()}].predicted = transfer.seconds();
  }
  for (const v1::PipelineMeasurement::Transfer& transfer : run.measurement().transfers()) {
    ways[{transfer.edge(), transfer.backward(), transfer.samples()}].measured = &transfer;
  }
  TextTable table({"EDGE>", "WAY", "SAMPLES>", "TRANSFER: PREDICTED>", "MEASURED>", "DEVIATION>",
                   "FIRST BYTE>"});
  for (const auto& [key, times] : ways) {
    const auto& [edge, backward, samples] = key;
    std::optional<double> measured, first_byte;
    if (times.measured != nullptr) {
      measured = times.measured->transfer_seconds();
      first_byte = times.measured->first_byte_seconds();
    }
    table.AddRow({absl::StrCat(edge), backward ? "backward" : "forward", absl::StrCat(samples),
                  Seconds(times.predicted), Seconds(measured), Deviation(times.predicted, measured),
                  Seconds(first_byte)});
  }
  return table.row_count() == 0 ? "" : absl::StrCat("\n", table.ToString());
}

// Of a layer program, whose transfers have names.
std::string LayerTransferTable(const v1::PipelineRun& run) {
  std::map<absl::string_view, double> measured;
  for (const v1::PipelineMeasurement::Transfer& transfer : run.measurement().transfers()) {
    measured[transfer.name()] = transfer.transfer_seconds();
  }
  TextTable table({"TRANSFER", "MESSAGES>", "ONE: PREDICTED>", "MEASURED>", "DEVIATION>",
                   "ALL: EXPOSED>", "HIDDEN>"});
  for (const v1::LayerRunSummary::Transfer& transfer : run.plan().layers().transfers()) {
    const auto found = measured.find(transfer.name());
    const auto seconds =
        found == measured.end() ? std::nullopt : std::optional<double>(found->second);
    table.AddRow({transfer.name(), absl::StrCat(transfer.messages()),
                  FormatSeconds(transfer.seconds()), Seconds(seconds),
                  Deviation(transfer.seconds(), seconds), FormatSeconds(transfer.exposed_seconds()),
                  FormatSeconds(transfer.hidden_seconds())});
  }
  return table.row_count() == 0 ? "" : absl::StrCat("\n", table.ToString());
}

}  // namespace

std::map<int, double> MeasuredBusy(const v1::PipelineMeasurement& measurement) {
  std::map<int, double> busy;
  for (const v1::PipelineMeasurement::Rank& rank : measurement.ranks()) {
    const v1::PipelineTimes& ops = rank.ops();
    double& seconds = busy[rank.rank()];
    double counted = 0;  // up to here
    for (int i = 0; i < std::min(ops.begin_size(), ops.end_size()); ++i) {
      seconds += std::max(0.0, ops.end(i) - std::max(counted, ops.begin(i)));
      counted = std::max(counted, ops.end(i));
    }
  }
  return busy;
}

int64_t IterationsTried(const v1::PipelineRun& run) {
  // Only the last ones are told.
  return run.done().empty() ? 0 : run.done(run.done_size() - 1).index() + 1;
}

std::string PipelineRunText(const v1::PipelineRun& run) {
  std::string text = absl::StrCat(
      ReportLine("run", run.id(), run.rehearsal() ? ", a rehearsal" : ""),
      ReportLine("state", StateName(run.state())),
      ReportLine("pipeline", run.pipeline().empty() ? "given inline" : run.pipeline(),
                 run.plan().schedule().empty() ? "" : ", " + run.plan().schedule()),
      ReportLine("iterations", IterationsTried(run), " of ", run.iterations(), " tried, ",
                 IterationsComplete(run), " complete, ", run.failed_iterations(), " failed"),
      run.error().empty() ? "" : ReportLine("error", run.error()),
      run.obstacle().empty() ? "" : ReportLine("waits", run.obstacle()),
      run.lost_ranks().empty()
          ? ""
          : ReportLine("state lost", "of rank ", absl::StrJoin(run.lost_ranks(), ", "),
                       ": all ranks have to say that they go on"));
  if (run.has_plan()) {
    absl::StrAppend(&text, ReportLine("plan", ShortId(run.plan().id())),
                    ReportLine("predicted", FormatSeconds(run.plan().predicted_seconds())));
  }
  if (HasMedian(run)) {
    absl::StrAppend(&text,
                    ReportLine("measured", FormatSeconds(run.median_seconds()),
                               ", the median of complete iterations, ",
                               Deviation(run.plan().predicted_seconds(), run.median_seconds())));
  }
  absl::StrAppend(&text, FailureLines(run));
  if (run.has_plan()) {
    absl::StrAppend(&text, RankTable(run),
                    run.plan().has_layers() ? LayerTransferTable(run) : TransferTable(run));
    const std::string layers = LayerExposuresText(run.plan().layers());
    if (!layers.empty()) absl::StrAppend(&text, "\n", layers);
  }
  return text;
}

Listing PipelineRunListing(const Cli& cli, std::span<const v1::PipelineRun> runs) {
  Listing listing(cli, "run", "runs",
                  {"RUN", "STATE", "PIPELINE", "SCHEDULE", "KIND", "TRIED>", "OF>", "FAILED>",
                   "PREDICTED>", "MEDIAN>", "CREATED (UTC)", "ERROR"});
  for (const v1::PipelineRun& run : runs) {
    listing.Add(run.id(),
                {run.id(), StateName(run.state()), run.pipeline().empty() ? "-" : run.pipeline(),
                 run.plan().schedule().empty() ? "-" : run.plan().schedule(),
                 run.rehearsal() ? "rehearsal" : "run", absl::StrCat(IterationsTried(run)),
                 absl::StrCat(run.iterations()), absl::StrCat(run.failed_iterations()),
                 run.has_plan() ? FormatSeconds(run.plan().predicted_seconds()) : "-",
                 HasMedian(run) ? FormatSeconds(run.median_seconds()) : "-",
                 UtcText(run.create_time()), run.error()},
                run);
  }
  return listing;
}

}  // namespace crossmesh

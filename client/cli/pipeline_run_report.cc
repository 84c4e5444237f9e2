#include "client/cli/pipeline_run_report.h"

#include "client/client.h"
#include "common/base/format.h"
#include "common/base/table.h"

#include <algorithm>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>

namespace crossmesh {
namespace {

using Align = TextTable::Align;

constexpr int kFailuresShown = 5;

// "+1.6 %"; of nothing predicted "-".
std::string Deviation(double measured, double predicted) {
  if (predicted <= 0 || measured <= 0) return "-";
  return absl::StrFormat("%+.1f %%", 100 * (measured / predicted - 1));
}

std::string Seconds(double seconds) { return seconds > 0 ? FormatSeconds(seconds) : "-"; }

int64_t CompleteOf(const v1::PipelineRun& run) {
  return std::ranges::count_if(
      run.done(), [](const v1::PipelineIteration& iteration) { return iteration.error().empty(); });
}

double BusySeconds(const v1::PipelineTimes& ops) {
  double seconds = 0;
  for (int i = 0; i < ops.begin_size(); ++i) seconds += ops.end(i) - ops.begin(i);
  return seconds;
}

std::string RankTable(const v1::PipelineRun& run) {
  TextTable table({{"RANK", Align::kRight},
                   {"OPS", Align::kRight},
                   {"BUSY PREDICTED", Align::kRight},
                   {"MEASURED", Align::kRight},
                   {"", Align::kRight},
                   {"BEGINS AT", Align::kRight},
                   {"ENDS AT", Align::kRight}});
  for (const v1::PipelineMeasurement::Rank& rank : run.measurement().ranks()) {
    const double busy = BusySeconds(rank.ops());
    const double predicted =
        rank.rank() < run.plan().ranks_size() ? run.plan().ranks(rank.rank()).busy_seconds() : 0;
    const bool any = rank.ops().begin_size() > 0;
    table.AddRow({absl::StrCat(rank.rank()), absl::StrCat(rank.ops().begin_size()),
                  Seconds(predicted), Seconds(busy), Deviation(busy, predicted),
                  any ? FormatSeconds(*std::ranges::min_element(rank.ops().begin())) : "-",
                  any ? FormatSeconds(*std::ranges::max_element(rank.ops().end())) : "-"});
  }
  return table.ToString();
}

std::string ChannelTable(const v1::PipelineRun& run) {
  TextTable table({{"EDGE", Align::kRight},
                   {"WAY"},
                   {"SAMPLES", Align::kRight},
                   {"PREDICTED", Align::kRight},
                   {"MEASURED", Align::kRight},
                   {"", Align::kRight},
                   {"FIRST BYTE", Align::kRight}});
  for (const v1::PipelineMeasurement::Channel& channel : run.measurement().channels()) {
    double predicted = 0;
    for (const v1::PipelineTransferSummary& transfer : run.plan().transfers()) {
      if (transfer.edge() == channel.edge() && transfer.backward() == channel.backward() &&
          transfer.samples() == channel.samples()) {
        predicted = transfer.seconds();
      }
    }
    table.AddRow(
        {absl::StrCat(channel.edge()), channel.backward() ? "backward" : "forward",
         absl::StrCat(channel.samples()), Seconds(predicted), Seconds(channel.transfer_seconds()),
         Deviation(channel.transfer_seconds(), predicted), Seconds(channel.first_byte_seconds())});
  }
  return table.row_count() == 0 ? "" : "\n" + table.ToString();
}

}  // namespace

std::string PipelineRunText(const v1::PipelineRun& run) {
  std::string text;
  const auto line = [&text](absl::string_view name, const std::string& value) {
    absl::StrAppendFormat(&text, "%-10s %s\n", name, value);
  };
  line("Run", absl::StrCat(run.id(), ", ", StateName(run.state()),
                           run.rehearsal() ? ", a rehearsal" : ""));
  if (!run.error().empty()) line("Error", run.error());
  line("Pipeline",
       absl::StrCat(run.pipeline().empty() ? "given inline" : run.pipeline(), ", ",
                    run.plan().schedule().empty() ? "not planned yet" : run.plan().schedule()));
  line("Iterations", absl::StrCat(run.iterations(), " asked for, ", CompleteOf(run), " complete, ",
                                  run.failed_iterations(), " failed"));
  const double predicted = run.plan().predicted_seconds();
  line("Iteration",
       absl::StrCat("predicted ", Seconds(predicted), ", measured ", Seconds(run.median_seconds()),
                    " (median): ", Deviation(run.median_seconds(), predicted)));
  int shown = 0;
  for (auto it = run.done().rbegin(); it != run.done().rend() && shown < kFailuresShown; ++it) {
    if (it->error().empty()) continue;
    line(shown++ == 0 ? "Failed" : "", absl::StrCat("iteration ", it->index(), ": ", it->error()));
  }
  if (run.measurement().ranks().empty()) return text;
  return absl::StrCat(text, "\n", RankTable(run), ChannelTable(run));
}

std::string PipelineRunTable(const std::vector<v1::PipelineRun>& runs) {
  TextTable table({{"RUN"},
                   {"STATE"},
                   {"PIPELINE"},
                   {"SCHEDULE"},
                   {"COMPLETE", Align::kRight},
                   {"FAILED", Align::kRight},
                   {"OF", Align::kRight},
                   {"PREDICTED", Align::kRight},
                   {"MEASURED", Align::kRight}});
  for (const v1::PipelineRun& run : runs) {
    table.AddRow({run.id(), StateName(run.state()), run.pipeline(), run.plan().schedule(),
                  absl::StrCat(CompleteOf(run)), absl::StrCat(run.failed_iterations()),
                  absl::StrCat(run.iterations()), Seconds(run.plan().predicted_seconds()),
                  Seconds(run.median_seconds())});
  }
  return table.ToString();
}

}  // namespace crossmesh

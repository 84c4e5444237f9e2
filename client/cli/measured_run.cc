#include "client/cli/measured_run.h"

#include "common/base/status_macros.h"

#include <algorithm>
#include <string>
#include <vector>

#include <absl/container/flat_hash_map.h>
#include <absl/status/status.h>
#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

absl::Status Refused(absl::string_view what, absl::string_view name) {
  return absl::InvalidArgumentError(
      absl::StrCat("measurement: expected ", what, " of the schedule, found ", name));
}

absl::Status CheckTimes(const v1::PipelineTimes& times) {
  if (times.begin_size() == times.name_size() && times.end_size() == times.name_size()) {
    return absl::OkStatus();
  }
  return Refused("a begin and an end for each name",
                 absl::StrCat(times.name_size(), ", ", times.begin_size(), ", ", times.end_size()));
}

}  // namespace

absl::StatusOr<PipelineRun> MeasuredRun(const OpTable& ops,
                                        const v1::PipelineMeasurement& measurement) {
  absl::flat_hash_map<std::string, OpIndex> index;
  for (OpIndex op = 0; op < ops.size(); ++op) index[ToString(ops.op(op))] = op;
  PipelineRun run{.ops = std::vector<TimeSpan>(ops.size()),
                  .transfers = std::vector<TimeSpan>(ops.transfers())};
  int64_t measured = 0;
  for (const v1::PipelineMeasurement::Rank& rank : measurement.ranks()) {
    RETURN_IF_ERROR(CheckTimes(rank.ops()));
    for (int i = 0; i < rank.ops().name_size(); ++i) {
      const auto op = index.find(rank.ops().name(i));
      if (op == index.end()) return Refused("ops", rank.ops().name(i));
      run.ops[op->second] = {rank.ops().begin(i), rank.ops().end(i)};
      ++measured;
    }
    if (rank.ops().name_size() == 0) continue;
    const double begin = *std::ranges::min_element(rank.ops().begin());
    const double end = *std::ranges::max_element(rank.ops().end());
    run.span_seconds = std::max(run.span_seconds, end - begin);
    run.seconds = std::max(run.seconds, end);
  }
  if (measured != ops.size()) {
    return Refused(absl::StrCat("all ", ops.size(), " ops"), absl::StrCat(measured));
  }
  for (const v1::PipelineMeasurement::Channel& channel : measurement.channels()) {
    RETURN_IF_ERROR(CheckTimes(channel.transfers()));
    const ChannelIndex of = 2 * channel.edge() + (channel.backward() ? 1 : 0);
    if (of < 0 || of >= ops.channels()) return Refused("edges", absl::StrCat(channel.edge()));
    for (int i = 0; i < channel.transfers().name_size(); ++i) {
      const auto op = index.find(channel.transfers().name(i));
      if (op == index.end()) return Refused("ops", channel.transfers().name(i));
      run.transfers[ops.TransferOf(of, ops.op(op->second).microbatch)] = {
          channel.transfers().begin(i), channel.transfers().end(i)};
    }
  }
  return run;
}

}  // namespace crossmesh

#include "client/cli/measured_timeline.h"

#include "common/base/status_macros.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include <absl/container/btree_map.h>
#include <absl/status/status.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_split.h>
#include <absl/strings/string_view.h>

namespace crossmesh {
namespace {

// Puts times where the table has their ops. Thread-compatible.
class MeasurementReader {
 public:
  explicit MeasurementReader(const OpTable& ops) : ops_(ops), is_known_(ops.size()) {
    run_.ops.resize(ops.size());
    run_.messages.resize(ops.messages());
    for (OpIndex i = 0; i < ops.size(); ++i) index_[Unfused(ops.op(i))] = i;
  }

  absl::StatusOr<PipelineTimeline> Read(const v1::PipelineMeasurement& measurement) && {
    for (const v1::PipelineMeasurement::Rank& rank : measurement.ranks()) {
      RETURN_IF_ERROR(ReadOps(rank.ops()));
    }
    for (OpIndex i = 0; i < ops_.size(); ++i) {
      if (is_known_[i]) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("measurement: expected op ", ToString(ops_.op(i)), ", found none"));
    }
    // Before the measured ones: a controller tells only so many, and those within a rank are none.
    PlaceTransfers();
    for (const v1::PipelineMeasurement::Transfer& transfer : measurement.transfers()) {
      RETURN_IF_ERROR(ReadTransfer(transfer));
    }
    SetSeconds();
    return std::move(run_);
  }

 private:
  static absl::Status CheckLengths(const v1::PipelineTimes& times) {
    if (times.begin_size() == times.name_size() && times.end_size() == times.name_size()) {
      return absl::OkStatus();
    }
    return absl::InvalidArgumentError(absl::StrCat("measurement: expected begin and end of ",
                                                   times.name_size(), " ops, found ",
                                                   times.begin_size(), " and ", times.end_size()));
  }

  absl::StatusOr<OpIndex> Find(absl::string_view name) const {
    ASSIGN_OR_RETURN(const Op op, ParseOp(name));
    const auto found = index_.find(Unfused(op));
    if (found != index_.end()) return found->second;
    return absl::InvalidArgumentError(
        absl::StrCat("measurement: expected ops of the schedule, found ", name));
  }

  absl::Status ReadOps(const v1::PipelineTimes& times) {
    RETURN_IF_ERROR(CheckLengths(times));
    for (int i = 0; i < times.name_size(); ++i) {
      // One op, or two that are fused.
      for (const absl::string_view name : absl::StrSplit(times.name(i), ' ')) {
        ASSIGN_OR_RETURN(const OpIndex op, Find(name));
        run_.ops[op] = {.begin = times.begin(i), .end = times.end(i)};
        is_known_[op] = true;
      }
    }
    return absl::OkStatus();
  }

  void PlaceTransfers() {
    for (TransferIndex transfer = 0; transfer < ops_.transfers(); ++transfer) {
      for (MicrobatchIndex m = 0; m < ops_.schedule().microbatches; ++m) {
        const double end = run_.ops[ops_.ProducerOf(transfer, m)].end;
        run_.messages[ops_.MessageOf(transfer, m)] = {.begin = end, .end = end};
      }
    }
  }

  absl::Status ReadTransfer(const v1::PipelineMeasurement::Transfer& measured) {
    if (measured.edge() < 0 || measured.edge() >= ops_.transfers() / 2) {
      return absl::InvalidArgumentError(absl::StrCat("measurement: expected an edge below ",
                                                     ops_.transfers() / 2, ", found ",
                                                     measured.edge()));
    }
    const v1::PipelineTimes& times = measured.messages();
    RETURN_IF_ERROR(CheckLengths(times));
    // The table has two for each edge: forward, then backward.
    const TransferIndex transfer = 2 * measured.edge() + (measured.backward() ? 1 : 0);
    for (int i = 0; i < times.name_size(); ++i) {
      ASSIGN_OR_RETURN(const OpIndex producer, Find(times.name(i)));
      const MicrobatchIndex m = ops_.op(producer).microbatch;
      run_.messages[ops_.MessageOf(transfer, m)] = {.begin = times.begin(i), .end = times.end(i)};
    }
    return absl::OkStatus();
  }

  void SetSeconds() {
    for (RankIndex rank = 0; rank < ops_.profile().ranks(); ++rank) {
      const OpIndex first = ops_.first(rank), end = ops_.first(rank + 1);
      if (first == end) continue;
      double least = run_.ops[first].begin, most = run_.ops[first].end;
      for (OpIndex i = first; i < end; ++i) {
        least = std::min(least, run_.ops[i].begin);
        most = std::max(most, run_.ops[i].end);
      }
      run_.seconds = std::max(run_.seconds, most);
      run_.span_seconds = std::max(run_.span_seconds, most - least);
    }
  }

  const OpTable& ops_;
  absl::btree_map<Op, OpIndex> index_;
  std::vector<bool> is_known_;  // by op: was it measured?
  PipelineTimeline run_;
};

}  // namespace

absl::StatusOr<PipelineTimeline> MeasuredTimeline(const v1::PipelineMeasurement& measurement,
                                                  const OpTable& ops) {
  return MeasurementReader(ops).Read(measurement);
}

}  // namespace crossmesh

#include "client/cli/operation_report.h"

#include "client/cli/plan_report.h"
#include "client/cli/progress.h"
#include "client/cli/report_text.h"
#include "client/client.h"
#include "common/base/clock.h"
#include "common/base/format.h"
#include "common/base/status_macros.h"
#include "common/base/table.h"
#include "common/wire/reshard_codec.h"

#include <absl/container/btree_set.h>
#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

std::string StrategyText(const v1::Operation& operation) {
  const std::string strategy = StrategyOf(operation.reshard());
  return strategy.empty() ? "relay" : strategy;
}

std::string ReplicaTable(const v1::Operation& operation) {
  TextTable table({"REPLICA>", "STATE", "DEVICES", "ERROR"});
  for (const v1::Replica& replica : operation.replicas()) {
    table.AddRow({absl::StrCat(replica.index()), StateName(replica.state()), replica.devices(),
                  replica.error()});
  }
  return table.ToString();
}

// A line for each task, which says of which attempt when that is not the first.
std::string WorkerTable(const v1::OperationReport& report) {
  TextTable table({"WORKER", "SENT>", "RECEIVED>", "COPIED>", "BIND>", "MOVE>", "PACK>", "UNPACK>",
                   "CHECKSUM>"});
  for (const v1::TaskReport& task : report.workers()) {
    table.AddRow({task.attempt() > 1 ? absl::StrCat(task.worker(), ", attempt ", task.attempt())
                                     : task.worker(),
                  Bytes(task.sent_bytes()), Bytes(task.received_bytes()),
                  Bytes(task.copied_bytes()), FormatSeconds(task.bind_seconds()),
                  FormatSeconds(task.move_seconds()), FormatSeconds(task.pack_seconds()),
                  FormatSeconds(task.unpack_seconds()), FormatSeconds(task.checksum_seconds())});
  }
  return table.ToString();
}

// Those of all workers, each once.
absl::btree_set<absl::string_view> GpuLibraries(const v1::OperationReport& report) {
  absl::btree_set<absl::string_view> libraries;
  for (const v1::TaskReport& task : report.workers()) {
    libraries.insert(task.gpu_libraries().begin(), task.gpu_libraries().end());
  }
  return libraries;
}

// Sources that were given up, and have been consumed in part.
std::string DirtySourceLines(const v1::Operation& operation) {
  std::string lines;
  for (const v1::TaskReport& task : operation.report().workers()) {
    for (const std::string& device : task.released_sources()) {
      absl::StrAppend(&lines,
                      ReportLine("DIRTY", "storage \"", operation.reshard().source().storage(),
                                 "\" of device ", device, ", a source that was being released"));
    }
  }
  return lines;
}

// Time and rate are of what was committed: without any there is nothing to hold to the bound.
std::string MovedLine(const v1::Operation& operation) {
  const v1::OperationReport& report = operation.report();
  if (report.destination_bytes() == 0 && operation.total_bytes() > 0) {
    return ReportLine("moved", Bytes(operation.moved_bytes()), " of ",
                      Bytes(operation.total_bytes()), ", none of it committed");
  }
  return ReportLine("moved", Bytes(report.destination_bytes()), " in ",
                    FormatSeconds(report.transfer_seconds()), ", ",
                    FormatRate(report.throughput_bytes_per_second()));
}

std::string BoundLine(const v1::OperationReport& report) {
  const std::string bound = FormatSeconds(report.bound_seconds());
  if (report.destination_bytes() == 0) return ReportLine("bound", bound);
  return ReportLine("bound", bound, "; it took ",
                    RatioToBound(report.transfer_seconds(), report.bound_seconds()));
}

std::string ReportText(const v1::Operation& operation) {
  const v1::OperationReport& report = operation.report();
  const std::string plan_time =
      report.plan_cached() ? "cached" : FormatSeconds(report.plan_seconds());
  std::string text = absl::StrCat(
      MovedLine(operation),
      ReportLine("network", Bytes(report.network_bytes()), ", at least ",
                 Bytes(report.least_network_bytes()), " by any plan"),
      ReportLine("busiest host", Bytes(report.busiest_host_bytes()), " (", report.busiest_host(),
                 ")"),
      BoundLine(report), ReportLine("predicted", FormatSeconds(report.predicted_seconds())),
      report.search().empty() ? "" : ReportLine("search", report.search()),
      ReportLine("phases", "plan ", plan_time, ", dispatch ",
                 FormatSeconds(report.dispatch_seconds()), ", first byte ",
                 FormatSeconds(report.first_byte_seconds()), ", transfer ",
                 FormatSeconds(report.transfer_seconds()), ", commit ",
                 FormatSeconds(report.commit_seconds()), ", total ",
                 FormatSeconds(report.total_seconds())));
  for (const v1::SlowLink& link : report.slow_links()) {
    absl::StrAppend(
        &text, ReportLine("slow link", link.from(), " to ", link.to(), ": ",
                          Bytes(link.sent_bytes()), " took ", FormatSeconds(link.busy_seconds()),
                          ", the operation was predicted to take ",
                          FormatSeconds(report.predicted_seconds())));
  }
  if (operation.state() != v1::OPERATION_STATE_COMMITTED) {
    absl::StrAppend(&text, DirtySourceLines(operation));
  }
  for (const absl::string_view library : GpuLibraries(report)) {
    absl::StrAppend(&text, ReportLine("between GPUs", library));
  }
  return absl::StrCat(text, BroadcastLines(report.broadcast_groups()),
                      report.has_m2n() ? M2nLine(report.m2n()) : "",
                      WarningLines(report.warnings()));
}

}  // namespace

std::string OperationText(const v1::Operation& operation) {
  std::string text = absl::StrCat(
      ReportLine("operation", operation.id()), ReportLine("state", StateName(operation.state())),
      ReportLine("strategy", StrategyText(operation), ", attempt ", operation.attempt()),
      operation.plan_id().empty() ? "" : ReportLine("plan", operation.plan_id()),
      operation.error().empty() ? "" : ReportLine("error", operation.error()));
  if (operation.has_report()) {
    absl::StrAppend(&text, ReportText(operation));
  } else {
    absl::StrAppend(&text, ReportLine("moved", Bytes(operation.moved_bytes()), " of ",
                                      Bytes(operation.total_bytes())));
  }
  if (!operation.replicas().empty()) absl::StrAppend(&text, "\n", ReplicaTable(operation));
  if (!operation.report().workers().empty()) {
    absl::StrAppend(&text, "\n", WorkerTable(operation.report()));
  }
  return text;
}

Listing OperationListing(const Cli& cli, std::span<const v1::Operation> operations) {
  Listing listing(cli, "operation", "operations",
                  {"OPERATION", "STATE", "STRATEGY", "MOVED>", "TOTAL>", "CREATED (UTC)", "ERROR"});
  for (const v1::Operation& operation : operations) {
    listing.Add(operation.id(),
                {operation.id(), StateName(operation.state()), StrategyText(operation),
                 Bytes(operation.moved_bytes()), Bytes(operation.total_bytes()),
                 UtcText(operation.create_time()), operation.error()},
                operation);
  }
  return listing;
}

absl::Status FollowOperation(
    Cli& cli, const std::string& label,
    absl::FunctionRef<absl::StatusOr<v1::Operation>(Client::OnChange)> follow) {
  const RealClock clock;
  Progress progress(label, 0, Progress::FormFor(cli.json()), clock);
  const auto on_change = [&progress](const v1::Operation& now) {
    progress.SetTotal(now.total_bytes());
    progress.Update(now.moved_bytes(), StateName(now.state()));
  };
  ASSIGN_OR_RETURN(const v1::Operation operation, follow(on_change));
  progress.Finish(absl::StrCat(operation.id(), ": ", StateName(operation.state())));
  // What an operation that failed came to is of use as well: its error follows its report.
  RETURN_IF_ERROR(cli.Answer(operation, OperationText(operation)));
  return EndWith(cli, operation);
}

absl::Status EndWith(Cli& cli, const v1::Operation& operation) {
  // By its state and not by its error's code: that one may be of a worker, not of the controller.
  switch (operation.state()) {
    case v1::OPERATION_STATE_PARTIAL:
      cli.SetExitCode(ExitCode::kPartial);
      break;
    case v1::OPERATION_STATE_CANCELLED:
      cli.SetExitCode(ExitCode::kCancelled);
      break;
    default:
      cli.SetExitCode(ExitCode::kFailed);
  }
  return OutcomeOf(operation);
}

}  // namespace crossmesh

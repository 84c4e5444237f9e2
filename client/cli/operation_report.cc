#include "client/cli/operation_report.h"

#include "client/cli/plan_report.h"
#include "client/client.h"
#include "common/base/byte_count.h"
#include "common/base/format.h"
#include "common/base/table.h"
#include "common/wire/time_codec.h"

#include <utility>
#include <vector>

#include <absl/container/btree_set.h>
#include <absl/status/statusor.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>
#include <absl/time/time.h>

namespace crossmesh {
namespace {

using Align = TextTable::Align;

std::string Bytes(int64_t bytes) { return FormatBytes(ByteCount(bytes)); }

std::string Time(const google::protobuf::Timestamp& proto) {
  const absl::StatusOr<absl::Time> time = FromProto(proto);
  if (!time.ok()) return std::string(time.status().message());
  return absl::FormatTime("%Y-%m-%d %H:%M:%S", *time, absl::UTCTimeZone());
}

std::string StrategyOf(const v1::Operation& operation) {
  const std::string& strategy = operation.reshard().strategy();
  return strategy.empty() ? "relay" : strategy;
}

std::string ReplicaTable(const v1::Operation& operation) {
  TextTable table({{"REPLICA", Align::kRight}, {"STATE"}, {"DEVICES"}, {"ERROR"}});
  for (const v1::Replica& replica : operation.replicas()) {
    table.AddRow({absl::StrCat(replica.index()), StateName(replica.state()), replica.devices(),
                  replica.error()});
  }
  return table.ToString();
}

// A line for each task, which says of which attempt when that is not the first.
std::string WorkerTable(const v1::OperationReport& report) {
  TextTable table({{"WORKER"},
                   {"SENT", Align::kRight},
                   {"RECEIVED", Align::kRight},
                   {"COPIED", Align::kRight},
                   {"BIND", Align::kRight},
                   {"MOVE", Align::kRight},
                   {"PACK", Align::kRight},
                   {"UNPACK", Align::kRight},
                   {"CHECKSUM", Align::kRight}});
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

std::string ReportText(const v1::OperationReport& report) {
  const std::string plan_time =
      report.plan_cached() ? "cached" : FormatSeconds(report.plan_seconds());
  const std::vector<std::pair<std::string, std::string>> lines = {
      {"moved", absl::StrCat(Bytes(report.destination_bytes()), " in ",
                             FormatSeconds(report.transfer_seconds()), ", ",
                             FormatRate(report.throughput_bytes_per_second()))},
      {"network", absl::StrCat(Bytes(report.network_bytes()), ", at least ",
                               Bytes(report.least_network_bytes()), " by any plan")},
      {"busiest host",
       absl::StrCat(Bytes(report.busiest_host_bytes()), " (", report.busiest_host(), ")")},
      {"bound", absl::StrCat(FormatSeconds(report.bound_seconds()), "; it took ",
                             RatioToBound(report.transfer_seconds(), report.bound_seconds()))},
      {"predicted", FormatSeconds(report.predicted_seconds())},
      {"phases",
       absl::StrCat("plan ", plan_time, ", dispatch ", FormatSeconds(report.dispatch_seconds()),
                    ", first byte ", FormatSeconds(report.first_byte_seconds()), ", transfer ",
                    FormatSeconds(report.transfer_seconds()), ", commit ",
                    FormatSeconds(report.commit_seconds()), ", total ",
                    FormatSeconds(report.total_seconds()))},
  };
  std::string text;
  for (const auto& [name, value] : lines) absl::StrAppendFormat(&text, "%-13s %s\n", name, value);
  for (const v1::SlowLink& link : report.slow_links()) {
    absl::StrAppendFormat(
        &text, "%-13s %s to %s: %s took %s, the operation was predicted to take %s\n", "slow link",
        link.from(), link.to(), Bytes(link.sent_bytes()), FormatSeconds(link.busy_seconds()),
        FormatSeconds(report.predicted_seconds()));
  }
  for (const absl::string_view library : GpuLibraries(report)) {
    absl::StrAppendFormat(&text, "%-13s %s\n", "between GPUs", library);
  }
  return absl::StrCat(text, BroadcastLines(report.broadcast_groups()),
                      WarningLines(report.warnings()));
}

}  // namespace

std::string OperationText(const v1::Operation& operation) {
  std::string text = absl::StrFormat("%-13s %s\n%-13s %s\n%-13s %s, attempt %d\n", "operation",
                                     operation.id(), "state", StateName(operation.state()),
                                     "strategy", StrategyOf(operation), operation.attempt());
  if (!operation.plan_id().empty()) {
    absl::StrAppendFormat(&text, "%-13s %s\n", "plan", operation.plan_id());
  }
  if (!operation.error().empty()) {
    absl::StrAppendFormat(&text, "%-13s %s\n", "error", operation.error());
  }
  if (operation.has_report()) {
    absl::StrAppend(&text, ReportText(operation.report()));
  } else {
    absl::StrAppendFormat(&text, "%-13s %s of %s\n", "moved", Bytes(operation.moved_bytes()),
                          Bytes(operation.total_bytes()));
  }
  if (!operation.replicas().empty()) absl::StrAppend(&text, "\n", ReplicaTable(operation));
  if (!operation.report().workers().empty()) {
    absl::StrAppend(&text, "\n", WorkerTable(operation.report()));
  }
  return text;
}

std::string OperationTable(std::span<const v1::Operation> operations) {
  TextTable table({{"OPERATION"},
                   {"STATE"},
                   {"STRATEGY"},
                   {"MOVED", Align::kRight},
                   {"TOTAL", Align::kRight},
                   {"CREATED (UTC)"},
                   {"ERROR"}});
  for (const v1::Operation& operation : operations) {
    table.AddRow({operation.id(), StateName(operation.state()), StrategyOf(operation),
                  Bytes(operation.moved_bytes()), Bytes(operation.total_bytes()),
                  Time(operation.create_time()), operation.error()});
  }
  return table.ToString();
}

}  // namespace crossmesh

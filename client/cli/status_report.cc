#include "client/cli/status_report.h"

#include "client/cli/cli.h"
#include "client/cli/cluster_problems.h"
#include "client/cli/report_text.h"
#include "client/outcome.h"
#include "common/base/format.h"
#include "common/base/table.h"
#include "common/wire/time_codec.h"

#include <algorithm>
#include <vector>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>
#include <nlohmann/json.hpp>

namespace crossmesh {
namespace {

// So that all is on one screen.
constexpr size_t kRowsMax = 5;
constexpr size_t kProblemsMax = 10;

bool HasFailed(const v1::Operation& operation) {
  return operation.state() == v1::OPERATION_STATE_FAILED ||
         operation.state() == v1::OPERATION_STATE_PARTIAL;
}
bool HasFailed(const v1::PipelineRun& run) { return run.state() == v1::PIPELINE_RUN_STATE_FAILED; }

// The jobs that run, or those that failed.
template <typename Job>
std::vector<Job> Chosen(const std::vector<Job>& jobs, bool running) {
  std::vector<Job> chosen;
  for (const Job& job : jobs) {
    if (running ? !HasEnded(job) : HasFailed(job)) chosen.push_back(job);
  }
  return chosen;
}

std::string Ago(const v1::Controller& controller, bool is_known,
                const google::protobuf::Timestamp& time) {
  if (!is_known) return "not yet";
  const double seconds = static_cast<double>(controller.time().seconds() - time.seconds());
  return absl::StrCat(FormatSeconds(std::max(seconds, 0.0)), " ago");
}

std::string StoreText(const v1::Controller& controller) {
  const v1::ControllerStore& store = controller.store();
  std::string text = absl::StrCat(store.kind(), ", revision ", store.revision());
  if (store.kind() != "sqlite") return text;
  absl::StrAppend(&text, ", ", Bytes(store.database_bytes() + store.log_bytes()), ", ",
                  Bytes(store.free_bytes()), " free, verified ",
                  Ago(controller, store.has_verify_time(), store.verify_time()), ", backed up ",
                  Ago(controller, store.has_backup_time(), store.backup_time()));
  if (store.is_read_only()) absl::StrAppend(&text, "; READ-ONLY, see the log");
  if (store.is_full()) absl::StrAppend(&text, "; FULL, make room");
  return text;
}

std::string ControllerText(const ClusterView& view) {
  const v1::Controller& controller = view.controller;
  return absl::StrCat(absl::StrJoin(controller.addresses(), ", "), ", leads with epoch ",
                      controller.epoch(), ", version ", controller.version(), ", started ",
                      Ago(controller, true, controller.start_time()));
}

std::string StandbysText(const v1::Controller& controller) {
  if (controller.standbys().empty()) return "";
  return ReportLine("standing by",
                    absl::StrJoin(controller.standbys(), ", ",
                                  [](std::string* out, const v1::StandbyController& standby) {
                                    absl::StrAppend(out, PrintableName(standby.address()),
                                                    ", version ", PrintableName(standby.version()));
                                  }));
}

std::string Count(int64_t count, absl::string_view one, absl::string_view many) {
  return absl::StrCat(count, " ", count == 1 ? one : many);
}

std::string More(size_t count) {
  return count <= kRowsMax ? "" : absl::StrCat("and ", count - kRowsMax, " more\n");
}

std::string ProblemsText(const std::vector<ClusterProblem>& problems) {
  if (problems.empty()) return "";
  std::string text = "\nPROBLEMS\n--------\n";
  for (size_t i = 0; i < std::min(problems.size(), kProblemsMax); ++i) {
    absl::StrAppend(&text, problems[i].what, "\n    ", problems[i].remedy, "\n");
  }
  if (problems.size() > kProblemsMax) {
    absl::StrAppend(&text, "and ", problems.size() - kProblemsMax, " more: --json has all\n");
  }
  return text;
}

std::string RunningText(const ClusterView& view) {
  const std::vector<v1::Operation> operations = Chosen(view.operations, /*running=*/true);
  const std::vector<v1::PipelineRun> runs = Chosen(view.runs, /*running=*/true);
  if (operations.empty() && runs.empty()) return "";
  TextTable table({"RUNNING", "STATE", "DONE>", "OF>", "CREATED (UTC)"});
  for (size_t i = 0; i < std::min(operations.size(), kRowsMax); ++i) {
    const v1::Operation& operation = operations[i];
    table.AddRow({operation.id(), std::string(StateName(operation.state())),
                  Bytes(operation.moved_bytes()), Bytes(operation.total_bytes()),
                  UtcText(operation.create_time())});
  }
  for (size_t i = 0; i < std::min(runs.size(), kRowsMax); ++i) {
    table.AddRow({runs[i].id(), std::string(StateName(runs[i].state())),
                  absl::StrCat(runs[i].done_size()), absl::StrCat(runs[i].iterations()),
                  UtcText(runs[i].create_time())});
  }
  return absl::StrCat("\n", table.ToString(), More(operations.size()), More(runs.size()));
}

std::string FailuresText(const ClusterView& view) {
  struct Failure {
    int64_t seconds;
    std::vector<std::string> cells;
  };
  std::vector<Failure> failures;
  const auto add = [&](const auto& job) {
    failures.push_back({job.end_time().seconds(),
                        {job.id(), std::string(StateName(job.state())), UtcText(job.end_time()),
                         PrintableName(job.error())}});
  };
  for (const v1::Operation& operation : Chosen(view.operations, /*running=*/false)) add(operation);
  for (const v1::PipelineRun& run : Chosen(view.runs, /*running=*/false)) add(run);
  if (failures.empty()) return "";
  std::ranges::stable_sort(failures, std::greater<>(), &Failure::seconds);
  TextTable table({"FAILED", "STATE", "ENDED (UTC)", "ERROR"});
  for (size_t i = 0; i < std::min(failures.size(), kRowsMax); ++i) table.AddRow(failures[i].cells);
  return absl::StrCat("\n", table.ToString(), More(failures.size()));
}

}  // namespace

std::string WorkersText(const ClusterView& view) {
  const std::string text =
      absl::StrJoin(view.WorkersByState(), ", ", [](std::string* out, const auto& entry) {
        absl::StrAppend(out, entry.second, " ", entry.first);
      });
  return text.empty() ? "none" : text;
}

std::string StatusText(const ClusterView& view) {
  const v1::Controller& controller = view.controller;
  const auto running = Chosen(view.operations, /*running=*/true).size();
  const auto runs = Chosen(view.runs, /*running=*/true).size();
  return absl::StrCat(
      ReportLine("controller", ControllerText(view)), StandbysText(controller),
      ReportLine("store", StoreText(controller)), ReportLine("workers", WorkersText(view)),
      ReportLine("objects", Count(controller.meshes(), "mesh", "meshes"), ", ",
                 Count(controller.manifests(), "manifest", "manifests"), ", ",
                 Count(controller.pipelines(), "pipeline", "pipelines"), ", network ",
                 view.network.revision() == 0 ? "assumed"
                                              : absl::StrCat("revision ", view.network.revision())),
      ReportLine("jobs", Count(static_cast<int64_t>(running), "operation", "operations"), " and ",
                 Count(static_cast<int64_t>(runs), "run", "runs"), " of pipelines going on"),
      ProblemsText(ProblemsOf(view)), RunningText(view), FailuresText(view));
}

nlohmann::json StatusDocument(const ClusterView& view) {
  nlohmann::json document = {{"controller", ToJson(view.controller)},
                             {"network_revision", view.network.revision()},
                             {"workers", view.WorkersByState()}};
  document["problems"] = nlohmann::json::array();
  for (const ClusterProblem& problem : ProblemsOf(view)) {
    document["problems"].push_back({{"problem", problem.what}, {"remedy", problem.remedy}});
  }
  for (const auto& [name, running] : {std::pair("running", true), std::pair("failed", false)}) {
    nlohmann::json operations = nlohmann::json::array();
    nlohmann::json runs = nlohmann::json::array();
    for (const v1::Operation& one : Chosen(view.operations, running)) {
      operations.push_back(ToJson(one));
    }
    for (const v1::PipelineRun& one : Chosen(view.runs, running)) runs.push_back(ToJson(one));
    document[name] = {{"operations", std::move(operations)}, {"runs", std::move(runs)}};
  }
  return document;
}

}  // namespace crossmesh

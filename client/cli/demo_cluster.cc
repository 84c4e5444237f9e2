#include "client/cli/demo_cluster.h"

#include "client/cli/cli.h"
#include "client/pause.h"
#include "common/base/clock.h"
#include "common/base/status_macros.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include <absl/strings/str_cat.h>
#include <nlohmann/json.hpp>

namespace crossmesh {
namespace {

namespace fs = std::filesystem;

constexpr absl::Duration kStartMax = absl::Seconds(60);
constexpr absl::Duration kStopMax = absl::Seconds(5);
constexpr absl::Duration kPollInterval = absl::Milliseconds(20);
constexpr size_t kLogEndBytes = 1500;

}  // namespace

absl::Status DemoCluster::Start(const Options& options) {
  std::error_code error;
  program_folder_ = fs::read_symlink("/proc/self/exe", error).parent_path().string();
  RETURN_IF_ERROR(MakeFolder());
  RETURN_IF_ERROR(StartController());
  ASSIGN_OR_RETURN(Client client, Client::Connect(controller_address_, {}));
  client_ = std::make_unique<Client>(std::move(client));
  for (int number = 0; number < options.workers; ++number) {
    RETURN_IF_ERROR(StartWorker(number, options));
  }
  for (Worker& worker : workers_) {
    ASSIGN_OR_RETURN(worker.metrics_address, WaitUntilReady(worker.name, "metrics_address"));
  }
  return WaitForWorkers();
}

absl::Status DemoCluster::MakeFolder() {
  std::error_code error;
  std::string folder = (fs::temp_directory_path(error) / "crossmesh-demo-XXXXXX").string();
  MutexLock lock(mutex_);
  if (::mkdtemp(folder.data()) == nullptr) {
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot create ", folder));
  }
  folder_ = folder;
  folder_to_remove_ = folder;
  return absl::OkStatus();
}

absl::Status DemoCluster::StartDaemon(const std::string& program, const std::string& name,
                                      std::vector<std::string> arguments) {
  arguments.insert(arguments.end(),
                   {"--ready-file", PathOf(name + ".ready"), "--metrics-listen", "127.0.0.1:0"});
  MutexLock lock(mutex_);
  if (abandoned_) return absl::CancelledError("interrupted");
  ASSIGN_OR_RETURN(ChildProcess process,
                   ChildProcess::Start({.program = absl::StrCat(program_folder_, "/", program),
                                        .arguments = std::move(arguments),
                                        .log_path = PathOf(name + ".log")}));
  daemons_.push_back({.name = name, .process = std::move(process)});
  return absl::OkStatus();
}

absl::Status DemoCluster::StartController() {
  controller_address_ = "unix:" + PathOf("controller.sock");
  RETURN_IF_ERROR(
      StartDaemon("crossmesh-controller", "controller", {"--listen", controller_address_}));
  ASSIGN_OR_RETURN(controller_metrics_address_, WaitUntilReady("controller", "metrics_address"));
  return absl::OkStatus();
}

absl::Status DemoCluster::StartWorker(int number, const Options& options) {
  const std::string name = absl::StrCat("node-", number);
  const Worker worker{
      .name = name, .device = absl::StrCat(name, ".0"), .memory_socket = PathOf(name + ".memory")};
  std::vector<std::string> flags = {"--name",          name,
                                    "--devices",       worker.device,
                                    "--controller",    controller_address_,
                                    "--listen",        "unix:" + PathOf(name + ".sock"),
                                    "--memory-socket", worker.memory_socket,
                                    "--drain-timeout", "1"};
  if (!options.gpus.empty()) {
    flags.insert(flags.end(), {"--gpu", absl::StrCat(name, ".1=", options.gpus[number])});
  }
  flags.insert(flags.end(), options.worker_flags.begin(), options.worker_flags.end());
  RETURN_IF_ERROR(StartDaemon("crossmesh-worker", name, std::move(flags)));
  workers_.push_back(worker);
  return absl::OkStatus();
}

absl::StatusOr<std::string> DemoCluster::WaitUntilReady(const std::string& name,
                                                        const std::string& key) {
  const RealClock clock;
  const absl::Duration until = clock.Monotonic() + kStartMax;
  std::error_code error;
  while (!fs::exists(PathOf(name + ".ready"), error)) {
    RETURN_IF_ERROR(CheckAlive());
    if (clock.Monotonic() > until) {
      return absl::DeadlineExceededError(absl::StrCat(name, " is not ready after ",
                                                      absl::FormatDuration(kStartMax),
                                                      "; its log ends:\n", EndOfLog(name)));
    }
    Pause(kPollInterval);
  }
  ASSIGN_OR_RETURN(const std::string text, ReadFile(PathOf(name + ".ready")));
  const nlohmann::json ready = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  return ready.is_object() ? ready.value(key, std::string()) : std::string();
}

absl::Status DemoCluster::WaitForWorkers() {
  const RealClock clock;
  const absl::Duration until = clock.Monotonic() + kStartMax;
  while (true) {
    ASSIGN_OR_RETURN(const std::vector<v1::Worker> joined, client_->ListWorkers());
    const auto ready = std::ranges::count(joined, v1::WORKER_STATE_READY, &v1::Worker::state);
    if (ready == std::ssize(workers_)) return absl::OkStatus();
    RETURN_IF_ERROR(CheckAlive());
    if (clock.Monotonic() > until) {
      return absl::DeadlineExceededError(absl::StrCat("only ", ready, " of ", workers_.size(),
                                                      " workers have joined after ",
                                                      absl::FormatDuration(kStartMax)));
    }
    Pause(kPollInterval);
  }
}

absl::Status DemoCluster::CheckAlive() {
  MutexLock lock(mutex_);
  if (abandoned_) return absl::CancelledError("interrupted");
  for (Daemon& daemon : daemons_) {
    const std::optional<std::string> exit = daemon.process.ExitText();
    if (!exit) continue;
    return absl::UnavailableError(absl::StrCat(daemon.name, " ended with ", *exit,
                                               "; its log ends:\n", EndOfLog(daemon.name)));
  }
  return absl::OkStatus();
}

std::string DemoCluster::EndOfLog(const std::string& name) const {
  const absl::StatusOr<std::string> log = ReadFile(PathOf(name + ".log"));
  if (!log.ok()) return "(empty)";
  return log->substr(log->size() - std::min(log->size(), kLogEndBytes));
}

void DemoCluster::Stop() {
  {
    MutexLock lock(mutex_);
    for (const Daemon& daemon : daemons_) daemon.process.Terminate();
  }
  const RealClock clock;
  const absl::Duration until = clock.Monotonic() + kStopMax;
  const auto all_ended = [this] {
    MutexLock lock(mutex_);
    return std::ranges::all_of(
        daemons_, [](Daemon& daemon) { return daemon.process.ExitText().has_value(); });
  };
  while (!all_ended() && clock.Monotonic() < until) Pause(kPollInterval);
  Abandon();
}

void DemoCluster::Abandon() {
  MutexLock lock(mutex_);
  abandoned_ = true;
  for (Daemon& daemon : daemons_) daemon.process.Kill();
  std::error_code error;
  if (!folder_to_remove_.empty()) fs::remove_all(folder_to_remove_, error);
  folder_to_remove_.clear();
}

}  // namespace crossmesh

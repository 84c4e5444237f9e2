// The daemon: the controller of a cluster.

#include "common/base/allocator.h"
#include "common/base/error_place.h"
#include "common/base/event_fd.h"
#include "common/base/log.h"
#include "common/base/mutex.h"
#include "common/base/status_macros.h"
#include "common/daemon/daemon_main.h"
#include "common/daemon/ready_file.h"
#include "common/daemon/service_manager.h"
#include "common/daemon/stop_signals.h"
#include "common/mesh/topology_file.h"
#include "common/rpc/not_leader.h"
#include "controller/controller.h"
#include "controller/leadership/etcd/etcd_candidate.h"
#include "controller/standby_server.h"
#include "controller/store/monitored_store.h"
#include "controller/store/sqlite/sqlite_store.h"
#include "controller/store/sqlite/sqlite_upkeep.h"
#include "controller/store_commands.h"

#include <cstdint>
#include <fstream>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <utility>

#include <CLI/CLI.hpp>
#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/str_cat.h>
#include <absl/time/time.h>
#include <nlohmann/json.hpp>

namespace crossmesh {
namespace {

// For the next controller to lead at once.
constexpr absl::Duration kResignationMax = absl::Seconds(3);

struct Flags {
  Controller::Options controller;
  std::string state_folder;
  EtcdCandidate::Options candidate;  // with endpoints, when there are several controllers
  std::string topology_file;
  SqliteUpkeep::Options upkeep;  // of the store in the folder
  std::string backup_every = "15m";
  std::string request_ids_for = "24h";
  double shutdown_seconds = 10;
};

void Declare(CLI::App& app, Flags& flags) {
  app.add_option("--listen", flags.controller.listen,
                 "Where it serves: HOST:PORT (port 0: any) or unix:/PATH; repeat it for more")
      ->required();
  app.add_option("--metrics-listen", flags.controller.metrics_listen,
                 "Where Prometheus scrapes, e.g. 127.0.0.1:9400")
      ->capture_default_str();
  app.add_flag("--insecure", flags.controller.insecure,
               "Allow addresses beyond this host, without encryption");
  app.add_option("--state-dir", flags.state_folder,
                 "Folder of what outlives the controller; without one it forgets all when it ends");
  app.add_option(
      "--backup-dir", flags.upkeep.backup_folder,
      "Folder for copies of what is in --state-dir, which are made and verified while it "
      "runs");
  app.add_option("--backup-every", flags.backup_every, "Time between two copies, e.g. 15m")
      ->capture_default_str();
  app.add_option("--backups-kept", flags.upkeep.backups_kept, "How many copies are kept")
      ->check(CLI::Range(int64_t{1}, int64_t{100'000}))
      ->capture_default_str();
  app.add_option("--etcd", flags.candidate.store.etcd.endpoints,
                 "HOST:PORT of an etcd, in which metadata is, instead of a folder; repeat it for "
                 "its members. Of several controllers one leads and serves");
  app.add_option("--etcd-cluster", flags.candidate.store.cluster,
                 "Name of this cluster, where several have one etcd")
      ->capture_default_str();
  app.add_option("--etcd-watermark", flags.candidate.watermark,
                 "File of what etcd was when it was seen last: one that was set back is refused, "
                 "also after all controllers have ended");
  app.add_option("--advertise", flags.candidate.address,
                 "Where others reach this controller when it leads; the first --listen otherwise");
  app.add_option("--topology", flags.topology_file,
                 "JSON file that describes hosts, NICs and racks");
  app.add_option("--request-memory-max", flags.controller.request_bytes_max,
                 "Bytes of memory for all requests together, e.g. 256M; more are refused. If not "
                 "given, an eighth of what the machine or its control group has, from 64M to 1G")
      ->transform(CLI::AsSizeValue(/*kb_is_1000=*/false))
      ->check(CLI::Range(int64_t{1} << 20, int64_t{1} << 40));
  app.add_option("--plan-memory-max", flags.controller.plan_bytes_max,
                 "Bytes of memory for plans that are kept for further requests, e.g. 64M")
      ->transform(CLI::AsSizeValue(/*kb_is_1000=*/false))
      ->check(CLI::Range(int64_t{1} << 20, int64_t{1} << 40))
      ->default_str("512M");
  app.add_option("--request-ids-for", flags.request_ids_for,
                 "How long a request id is remembered, e.g. 2h: where more than 12 new requests a "
                 "second come all day, more than a million, which is the bound, would be")
      ->capture_default_str();
  app.add_option("--shutdown-timeout", flags.shutdown_seconds,
                 "Seconds for running operations to end after SIGTERM")
      ->check(CLI::Range(0.0, 3600.0))
      ->capture_default_str();
}

absl::Status ReadTopology(Flags& flags) {
  if (flags.topology_file.empty()) return absl::OkStatus();
  std::ifstream file(flags.topology_file);
  std::stringstream text;
  text << file.rdbuf();
  if (!file) {
    return absl::InvalidArgumentError(absl::StrCat("cannot read ", flags.topology_file));
  }
  ASSIGN_OR_RETURN(flags.controller.topology,
                   At(flags.topology_file, ParseTopologyFile(text.str())));
  return absl::OkStatus();
}

// Why the store's disk can be used no longer, and that there is a reason. Thread-safe.
class StoreFailure {
 public:
  static absl::StatusOr<std::unique_ptr<StoreFailure>> Create() {
    ASSIGN_OR_RETURN(EventFd happened, EventFd::Create());
    return std::make_unique<StoreFailure>(std::move(happened));
  }
  explicit StoreFailure(EventFd happened) : happened_(std::move(happened)) {}

  void Set(const absl::Status& why) {
    const MutexLock lock(mutex_);
    why_ = why;
    happened_.Signal();
  }
  absl::Status why() const {
    const MutexLock lock(mutex_);
    return why_;
  }
  const EventFd& happened() const { return happened_; }

 private:
  mutable Mutex mutex_;
  absl::Status why_ ABSL_GUARDED_BY(mutex_);
  EventFd happened_;
};

absl::Status OpenStore(Flags& flags, StoreFailure& failure) {
  if (flags.state_folder.empty()) {
    LogWarning("state_in_memory",
               {{"reason",
                 "without --state-dir meshes, manifests, operations and request ids are "
                 "forgotten when this controller ends"}});
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(std::unique_ptr<SqliteStore> store,
                   OpenStoreOfController(flags.state_folder, [&failure](const absl::Status& why) {
                     failure.Set(why);
                   }));
  flags.controller.epoch = store->next_epoch();
  flags.controller.store_kind = "sqlite";
  ASSIGN_OR_RETURN(flags.controller.upkeep, StartUpkeep(*store, flags.upkeep));
  flags.controller.store = MakeMonitoredStore(
      std::move(store),
      [&failure](const absl::Status& why) { failure.Set(WithExitCode(why, kExitStateDamaged)); });
  return absl::OkStatus();
}

// Of a flag; InvalidArgument says what was `expected`.
absl::StatusOr<absl::Duration> TimeOf(const std::string& text, absl::Duration least,
                                      absl::Duration most, absl::string_view expected) {
  absl::Duration time;
  if (absl::ParseDuration(text, &time) && time >= least && time <= most) return time;
  return absl::InvalidArgumentError(absl::StrCat(expected, ", found \"", text, "\""));
}

absl::Status ReadTimes(Flags& flags) {
  ASSIGN_OR_RETURN(flags.upkeep.backup_every,
                   TimeOf(flags.backup_every, absl::Seconds(1), absl::Hours(24 * 365),
                          "--backup-every: expected a time from 1s to a year, such as 15m"));
  ASSIGN_OR_RETURN(flags.controller.request_ids_for,
                   TimeOf(flags.request_ids_for, absl::Minutes(1), absl::Hours(24),
                          "--request-ids-for: expected a time from 1m to 24h, such as 2h"));
  return absl::OkStatus();
}

absl::Status CheckBackups(const Flags& flags) {
  if (flags.upkeep.backup_folder.empty() || !flags.state_folder.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError("--backup-dir: expected --state-dir as well, found none");
}

// What a daemon that serves has from its process.
struct Process {
  const DaemonFlags& daemon;
  const StopSignals& signals;
  ReadyFile& ready;
};

// Until a signal comes, which it returns; or 0, when `failed` does, after which nothing is waited
// for.
absl::StatusOr<int> Serve(const Flags& flags, const Process& process, const EventFd& failed) {
  ASSIGN_OR_RETURN(const std::unique_ptr<Controller> controller,
                   Controller::Create(flags.controller));
  for (const std::string& address : controller->addresses()) {
    LogInfo("controller_serves", {{"address", address},
                                  {"metrics_address", controller->metrics_address()},
                                  {"epoch", controller->epoch()}});
  }
  RETURN_IF_ERROR(process.ready.Write({{"addresses", controller->addresses()},
                                       {"metrics_address", controller->metrics_address()},
                                       {"epoch", controller->epoch()}}));
  RETURN_IF_ERROR(TellServiceManager("READY=1\nSTATUS=serves"));
  const int signal = WaitUntilStopped(process.signals, process.daemon, &failed);
  LogInfo("controller_stops", {{"signal", signal}});
  const absl::Duration deadline =
      signal == 0 ? absl::ZeroDuration() : absl::Seconds(flags.shutdown_seconds);
  RETURN_IF_ERROR(StopUnlessInsisted(process.signals, [&] { controller->Shutdown(deadline); }));
  return signal;
}

// Of a store: nothing that this process does makes it good.
bool IsOfNoUse(const absl::Status& status) {
  return absl::IsDataLoss(status) || absl::IsFailedPrecondition(status);
}

// Which controller leads, for calls that come before this one has asked etcd. Thread-safe.
class LeaderNews {
 public:
  void Follow(const EtcdCandidate& candidate) {
    const MutexLock lock(mutex_);
    candidate_ = &candidate;
  }
  std::optional<std::string> leader() const {
    const MutexLock lock(mutex_);
    return candidate_ == nullptr ? std::nullopt : candidate_->standing().leader;
  }

 private:
  mutable Mutex mutex_;
  const EtcdCandidate* candidate_ ABSL_GUARDED_BY(mutex_) = nullptr;
};

// One of several controllers: stands by until it leads, and ends when it does not any more. Started
// again it stands by again.
absl::Status ServeForATerm(Flags flags, const Process& process) {
  if (!flags.state_folder.empty()) {
    return absl::InvalidArgumentError("expected --state-dir or --etcd, found both");
  }
  flags.candidate.store.etcd.insecure = flags.controller.insecure;
  LeaderNews news;
  ASSIGN_OR_RETURN(std::unique_ptr<StandbyServer> standby,
                   StandbyServer::Start({.listen = flags.controller.listen,
                                         .metrics_listen = flags.controller.metrics_listen,
                                         .insecure = flags.controller.insecure,
                                         .health = flags.controller.health,
                                         .advertise = flags.candidate.address,
                                         .leader = [&news] { return news.leader(); }}));
  flags.controller.listen = standby->addresses();
  if (flags.candidate.address.empty()) flags.candidate.address = flags.controller.listen.front();
  absl::StatusOr<std::unique_ptr<EtcdCandidate>> started = EtcdCandidate::Start(flags.candidate);
  if (IsOfNoUse(started.status())) {
    return WithExitCode(started.status(), kExitStateDamaged);
  }
  RETURN_IF_ERROR(started.status());
  const std::unique_ptr<EtcdCandidate> candidate = *std::move(started);
  RETURN_IF_ERROR(TellServiceManager("READY=1\nSTATUS=stands by"));
  LogInfo("controller_stands_by", {{"address", flags.candidate.address}});
  news.Follow(*candidate);
  absl::StatusOr<int> signal =
      WaitUntilStopped(process.signals, process.daemon, &candidate->has_begun());
  standby.reset();  // its addresses are the leader's now
  const std::optional<uint64_t> epoch = candidate->standing().epoch;
  if (*signal == 0 && epoch.has_value()) {
    flags.controller.store = MakeMonitoredStore(
        candidate->store(),
        [&candidate = *candidate](const absl::Status& why) { candidate.End(why); });
    flags.controller.store_kind = "etcd";
    flags.controller.epoch = epoch;
    flags.controller.may_answer = [&candidate = *candidate] {
      return candidate.leads() ? absl::OkStatus() : NotLeaderError(candidate.standing().leader);
    };
    signal = Serve(flags, process, candidate->has_ended());
  }
  const absl::Status why = candidate->standing().why;
  candidate->Resign(kResignationMax);
  RETURN_IF_ERROR(signal.status());
  if (*signal != 0) return absl::OkStatus();
  const std::string text = absl::StrCat("this controller leads no more: ", why.message());
  // Started again it would take what it finds for what there was.
  if (IsOfNoUse(why)) return WithExitCode(absl::DataLossError(text), kExitStateDamaged);
  return absl::UnavailableError(text);
}

absl::Status RunController(Flags flags, const DaemonFlags& daemon) {
  RETURN_IF_ERROR(ReadTopology(flags));
  RETURN_IF_ERROR(ReadTimes(flags));
  RETURN_IF_ERROR(CheckBackups(flags));
  flags.controller.health = daemon.health;
  if (daemon.only_check) return absl::OkStatus();
  ASSIGN_OR_RETURN(const StopSignals signals, StopSignals::Block());
  ASSIGN_OR_RETURN(ReadyFile ready, ReadyFile::Claim(daemon.ready_file));
  const Process process{daemon, signals, ready};
  if (!flags.candidate.store.etcd.endpoints.empty()) {
    return ServeForATerm(std::move(flags), process);
  }
  ASSIGN_OR_RETURN(const std::unique_ptr<StoreFailure> failure, StoreFailure::Create());
  RETURN_IF_ERROR(OpenStore(flags, *failure));
  RETURN_IF_ERROR(Serve(flags, process, failure->happened()).status());
  return failure->why();
}

}  // namespace
}  // namespace crossmesh

int main(int argc, char** argv) {
  if (const auto exit_code = crossmesh::RunStoreCommand(argc, argv)) return *exit_code;
  crossmesh::KeepFreedMemory();  // it plans whenever a trainer has new weights
  CLI::App app("Crossmesh controller: holds the cluster's metadata, plans, and runs operations",
               "crossmesh-controller");
  app.footer("Commands for the store of --state-dir: verify-store, backup, restore");
  crossmesh::Flags flags;
  crossmesh::Declare(app, flags);
  return crossmesh::RunDaemon(app, argc, argv, [&flags](const crossmesh::DaemonFlags& daemon) {
    return crossmesh::RunController(std::move(flags), daemon);
  });
}

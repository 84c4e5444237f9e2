#include "client/cli/cluster_problems.h"

#include "client/cli/cli.h"
#include "client/cli/report_text.h"
#include "client/outcome.h"
#include "common/base/count_text.h"
#include "common/base/format.h"

#include <algorithm>
#include <cstdint>

#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

// A store is near its floor when it has less room than this many times the floor.
constexpr int64_t kNearFloor = 4;
// A store that has not been copied for so long has most likely been forgotten.
constexpr int64_t kBackupSecondsMax = 24 * 3600;

// Until one that was replaced stands by.
constexpr int64_t kStandbySecondsMax = 15;

using Problems = std::vector<ClusterProblem>;

std::string Since(const v1::Controller& controller, const google::protobuf::Timestamp& time) {
  const int64_t seconds = controller.time().seconds() - time.seconds();
  return FormatSeconds(static_cast<double>(std::max<int64_t>(seconds, 0)));
}

// Whoever has an etcd is to have two controllers.
void AddStandby(const v1::Controller& controller, Problems& problems) {
  if (controller.store().kind() != "etcd" || !controller.standbys().empty()) return;
  if (controller.time().seconds() - controller.start_time().seconds() < kStandbySecondsMax) return;
  problems.push_back({"no other controller stands by: when this one ends, none leads",
                      "start a second one with the same --etcd, or look into its log"});
}

void AddRoom(const v1::ControllerStore& store, Problems& problems) {
  if (store.is_full()) {
    problems.push_back({absl::StrCat("the store is full: ", Bytes(store.free_bytes()), " are free"),
                        "make room on its disk; crossmesh release-reserve lets deletes through"});
  } else if (store.free_bytes_min() > 0 &&
             store.free_bytes() < kNearFloor * store.free_bytes_min()) {
    problems.push_back(
        {absl::StrCat("the store has ", Bytes(store.free_bytes()),
                      " of room left, and takes nothing new below ", Bytes(store.free_bytes_min())),
         "make room on its disk"});
  }
}

void AddStore(const v1::Controller& controller, Problems& problems) {
  const v1::ControllerStore& store = controller.store();
  if (store.is_read_only()) {
    problems.push_back({"the store is read-only: it is damaged, or its disk fails",
                        "see the controller's log (crossmesh debug dump), replace the disk, and "
                        "restore a backup: crossmesh-controller restore"});
  }
  AddRoom(store, problems);
  if (!store.is_read_only() && store.disk_failures() > 0) {
    problems.push_back({absl::StrCat("the store's disk has failed ",
                                     CountText(store.disk_failures(), "time", "times"),
                                     " since the controller started"),
                        "look at the disk of the controller's host; crossmesh verify-store"});
  }
  if (store.backup_failures() > 0) {
    problems.push_back({absl::StrCat("backups of the store fail: ", store.backup_failures(),
                                     " since the controller started"),
                        "see the controller's log, and the folder of --backup-dir"});
  }
  if (store.kind() != "sqlite") return;
  const google::protobuf::Timestamp& since =
      store.has_backup_time() ? store.backup_time() : controller.start_time();
  if (controller.time().seconds() - since.seconds() <= kBackupSecondsMax) return;
  problems.push_back(
      {absl::StrCat("the store was not copied for ", Since(controller, since)),
       "crossmesh-controller --backup-dir FOLDER copies it regularly; crossmesh backup once"});
}

void AddStorages(const v1::Worker& worker, Problems& problems) {
  for (const std::string& storage : worker.dirty_storages()) {
    problems.push_back({absl::StrCat("storage ", PrintableName(storage), " of worker ",
                                     worker.name(), " is DIRTY: written in part"),
                        "reshard into it again, or fill it anew and say so; readers are refused "
                        "until then"});
  }
}

void AddState(const v1::Controller& controller, const v1::Worker& worker, Problems& problems) {
  const std::string silent = Since(controller, worker.last_heartbeat_time());
  if (worker.state() == v1::WORKER_STATE_SUSPECT) {
    problems.push_back({absl::StrCat("worker ", worker.name(), " is SUSPECT: silent for ", silent),
                        "look at its host and at the network to it; silent for longer it is lost"});
  } else if (worker.state() == v1::WORKER_STATE_LOST) {
    problems.push_back(
        {absl::StrCat("worker ", worker.name(), " is LOST: heard last ", silent, " ago"),
         absl::StrCat("start it again, or: crossmesh worker forget ", worker.name())});
  }
}

void AddGpus(const v1::Worker& worker, Problems& problems) {
  for (const v1::Gpu& gpu : worker.gpus()) {
    if (gpu.process().incarnation() != 0) continue;
    problems.push_back(
        {absl::StrCat("no process drives GPU ", PrintableName(gpu.process().gpu()), " (",
                      PrintableName(gpu.device()), ") of worker ", worker.name()),
         "see the worker's log; crossmesh doctor on its host"});
  }
}

// Of each link once.
void AddLinks(const v1::Worker& worker, Problems& problems) {
  for (const v1::FailedLink& link : worker.failed_links()) {
    if (link.peer() < worker.name()) continue;
    problems.push_back(
        {absl::StrCat("the link between workers ", worker.name(), " and ",
                      PrintableName(link.peer()), " has failed: ", PrintableName(link.reason())),
         "look at the network between their hosts; plans go around it, and it is "
         "tried again within minutes"});
  }
}

void AddWorker(const v1::Controller& controller, const v1::Worker& worker, Problems& problems) {
  AddState(controller, worker, problems);
  if (!worker.problem().empty()) {
    problems.push_back(
        {PrintableName(worker.problem()), "stop one of the two processes, or rename it"});
  }
  if (worker.state() == v1::WORKER_STATE_LOST) return;  // the rest is of a process that is gone
  AddGpus(worker, problems);
  AddLinks(worker, problems);
  AddStorages(worker, problems);
}

}  // namespace

std::vector<ClusterProblem> ProblemsOf(const ClusterView& view) {
  Problems problems;
  AddStandby(view.controller, problems);
  AddStore(view.controller, problems);
  for (const v1::Worker& worker : view.workers) AddWorker(view.controller, worker, problems);
  for (const v1::PipelineRun& run : view.runs) {
    if (HasEnded(run) || run.obstacle().empty()) continue;
    problems.push_back(
        {absl::StrCat("run ", run.id(), " is held: ", PrintableName(run.obstacle())),
         absl::StrCat("it goes on once that is over; or: crossmesh pipeline stop ", run.id())});
  }
  return problems;
}

}  // namespace crossmesh

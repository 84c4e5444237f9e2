#pragma once

#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/communicators/communicator_key.h"
#include "common/mesh/device.h"
#include "crossmesh/v1/worker_service.pb.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <absl/container/btree_map.h>
#include <absl/container/flat_hash_map.h>
#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>
#include <absl/time/time.h>

namespace crossmesh {

class FailedLinks;
class NameGuard;

enum class WorkerState : uint8_t { kReady, kSuspect, kDraining, kLost };
absl::string_view WorkerStateName(WorkerState state);

// A device that is a GPU, and the process that drives it now: incarnation 0 is none.
struct GpuRecord {
  DeviceId device;
  RankName process;
  std::optional<v1::GpuHardware> hardware = std::nullopt;  // for people

  bool has_process() const { return process.incarnation != 0; }
};

// A link to another worker over which bytes did not get through; for people.
struct FailedPeer {
  std::string peer;
  std::string reason;
  absl::Time time;
};

struct WorkerRecord {
  std::string name;
  uint64_t incarnation = 0;
  std::vector<DeviceId> devices;
  std::vector<GpuRecord> gpus;  // of the devices
  std::string execution_address;
  std::string transport;
  std::string data_address;
  std::vector<std::string> data_interfaces;  // network interfaces of its data plane
  std::string version;
  int32_t protocol = 0;                    // that this controller and it speak
  std::optional<v1::Host> described_host;  // for people, and for the network's description
  WorkerState state = WorkerState::kReady;
  bool silent = false;  // lost for want of heartbeats, while its session was open
  // Of its process, whatever its state.
  bool drain_asked = false;  // by an operator
  bool draining = false;     // it says so
  bool leaving = false;      // of its own, as it says
  bool m2n = false;          // all processes that drive its GPUs can use NCCL M2N
  int64_t memory_bytes = 0;
  int32_t running_tasks = 0;
  std::vector<std::string> running_operations;  // as of the last heartbeat
  std::vector<v1::InterfaceTraffic> traffic;    // likewise, for people
  std::vector<std::string> dirty_storages;      // likewise
  absl::Time last_heartbeat;                    // wall clock, for people
  std::vector<FailedPeer> failed_links;         // likewise
  std::string problem;                          // with its name, for people; empty: none
};

// Hears of workers that come and are lost. Called without any lock held, on the thread that found
// out.
class MembershipListener {
 public:
  virtual ~MembershipListener() = default;
  virtual void OnWorkerLost(const WorkerRecord& worker, const absl::Status& why) = 0;
  virtual void OnWorkerReady(const WorkerRecord& worker) = 0;
  // A GPU's process is gone, with its worker or without; `why` names the worker.
  virtual void OnGpuProcessLost(const RankName& process, const absl::Status& why) = 0;
};

// The workers, their sessions and their liveness. A session is named by (worker, incarnation,
// session number): what an older session says is ignored. Thread-safe.
class WorkerRegistry {
 public:
  // That workers keep, and how many of them may be missed before a worker is suspect.
  static constexpr absl::Duration kHeartbeatInterval = absl::Seconds(2);
  static constexpr int kSuspectAfterMissed = 2;

  struct Options {
    absl::Duration lost_after = absl::Seconds(10);
  };
  WorkerRegistry(Options options, const Clock& clock, MembershipListener& listener);
  ~WorkerRegistry();

  // A new session. Another one of the same process, which incarnation and address name, takes the
  // old one's place. Another process gets the name when the old one's stream has ended, which is
  // then reported lost first, or when it is lost: whatever the incarnations, since a stranger may
  // name any. InvalidArgument: a bad name, no device, a GPU that is none of the devices or there
  // twice; AlreadyExists: a device or GPU that another live worker owns (both named), or the name
  // of another process, whose stream is open; what NameGuard::Admit says. Returns the session's
  // number.
  absl::StatusOr<uint64_t> Register(WorkerRecord record);
  struct Heartbeat {
    int64_t memory_bytes = 0;
    int32_t running_tasks = 0;
    std::vector<RankName> gpu_processes;  // that drive GPUs now; those of strangers are left out
    bool draining = false;
    bool leaving = false;
    bool m2n = false;
    std::vector<std::string> running_operations;
    std::vector<v1::InterfaceTraffic> traffic;
    std::vector<std::string> dirty_storages;
  };
  // False when the session is not the worker's present one: it should end.
  bool Beat(absl::string_view worker, uint64_t session, const Heartbeat& heartbeat);
  // The session's stream ended, and may be renewed: another process may take the name now.
  void StreamEnded(absl::string_view worker, uint64_t session);
  // The session is over: lost at once, or, soon after a pause of this process, when it stays
  // silent: workers that had no answer have broken off, and come again. `left`: on purpose, without
  // a task.
  void SessionEnded(absl::string_view worker, uint64_t session, bool left);
  // NotFound: there is no live one; Unavailable: it may yet come back.
  absl::Status Drain(absl::string_view worker);
  // The worker drains until it says that it does not any more. Errors as Drain; FailedPrecondition:
  // it leaves of its own.
  absl::Status Undrain(absl::string_view worker);
  // The worker is lost at once, and its process does not get the name again. Errors as Drain.
  absl::Status Evict(absl::string_view worker);
  // Takes a lost worker off the list. NotFound; FailedPrecondition: it is not lost.
  absl::Status Forget(absl::string_view worker);
  // From now on, for so long, workers of a former controller may come back.
  void AwaitReturns(absl::Duration limit);
  // Looks for silent workers; call every heartbeat interval or oftener. Between two calls a worker
  // is silent for an interval at most: one that comes late tells that this process did not run, and
  // then no beat was heard.
  void Sweep();

  std::vector<WorkerRecord> List() const;
  absl::StatusOr<WorkerRecord> Get(absl::string_view worker) const;
  // The workers that own `devices`, by name; a suspect one counts as there. FailedPrecondition
  // names the first device whose worker is not there, lost or draining; Unavailable one whose
  // worker may yet come back.
  absl::StatusOr<std::vector<WorkerRecord>> OwnersOf(std::span<const DeviceId> devices) const;

  // Why GPUs among these devices cannot use NCCL M2N, naming the first that lacks it; empty: they
  // can.
  std::string WhyNoM2n(std::span<const DeviceId> devices) const;
  // A hash of the names of the live workers whose GPUs can use it: what WhyNoM2n says is the same
  // as long as this is. 0: none can.
  size_t m2n_workers() const;

  // Of an operation, as `worker` says: bytes did not get through to that peer, or did. Nothing
  // happens unless both are live.
  void LinkFailed(absl::string_view worker, absl::string_view peer, absl::string_view reason);
  void LinksWorked(absl::string_view worker, std::span<const std::string> peers);
  // Between the hosts of live workers, each in both directions: as FailedLinks keeps them.
  using HostLinks = std::set<std::pair<std::string, std::string>>;
  HostLinks FailedHostLinks() const;

  struct ProcessPlace {
    std::string worker;
    std::string execution_address;
  };
  // Where a process that drives a GPU can be asked; nothing when no live worker has it.
  std::optional<ProcessPlace> FindGpuProcess(const RankName& process) const;

 private:
  struct Member {
    WorkerRecord record;
    uint64_t session = 0;
    bool stream_open = true;
    absl::Duration silence;  // until `looked`
    absl::Duration looked;   // monotonic
  };

  // May a process of this record have its name?
  absl::Status CheckNameIsFree(const WorkerRecord& record) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // For people: with what is wrong with its name and its links.
  WorkerRecord Described(const WorkerRecord& record) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void DescribeLinks(WorkerRecord& record) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Null: lost, or not known.
  const WorkerRecord* FindLiveRecord(absl::string_view worker) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  absl::Status CheckDevicesAreFree(const WorkerRecord& record) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Own(const WorkerRecord& record) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Disown(const WorkerRecord& record) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void SetM2n(WorkerRecord& record, bool m2n) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Null when that session is over.
  Member* FindSession(absl::string_view worker, uint64_t session)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<Member*> FindLive(absl::string_view worker) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  WorkerRecord Lose(Member& member) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void TellLost(const WorkerRecord& worker, const absl::Status& why);
  // Of the processes of `before` those that are not of `after`.
  void TellReplaced(const WorkerRecord& before, const WorkerRecord& after);

  const Options options_;
  const Clock& clock_;
  MembershipListener& listener_;

  mutable Mutex mutex_;
  const std::unique_ptr<NameGuard> names_ ABSL_PT_GUARDED_BY(mutex_);
  const std::unique_ptr<FailedLinks> links_ ABSL_PT_GUARDED_BY(mutex_);
  absl::btree_map<std::string, Member> workers_ ABSL_GUARDED_BY(mutex_);
  // Devices and GPUs of live workers only.
  absl::flat_hash_map<DeviceId, std::string> owner_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<std::string, std::string> gpu_owner_ ABSL_GUARDED_BY(mutex_);
  size_t m2n_workers_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t last_session_ ABSL_GUARDED_BY(mutex_) = 0;
  std::optional<absl::Duration> swept_ ABSL_GUARDED_BY(mutex_);
  absl::Duration excused_until_ ABSL_GUARDED_BY(mutex_);  // monotonic: this process did not run
  absl::Duration returned_by_ ABSL_GUARDED_BY(mutex_);    // monotonic: as AwaitReturns says
};

}  // namespace crossmesh

#pragma once

#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/event_loop/event_loop.h"
#include "controller/leadership/election_machine.h"
#include "controller/store/etcd/etcd_client.h"
#include "controller/store/etcd/records/etcd_keys.h"

#include <atomic>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/time/time.h>

namespace crossmesh {

// Called by the election's thread, one call after the other. Must not block.
struct LeadershipListener {
  // A term has begun: with an epoch that is higher than all before, and the fence that an EtcdStore
  // takes.
  std::function<void(uint64_t epoch, int64_t fence)> on_leading;
  // There is no term, or not any more; told when something of it changes. OK: `leader` is where the
  // one that leads is reached. Unavailable: nobody is known to lead, and why;
  // FailedPrecondition, with what to do: etcd is not that of this cluster, or was set back.
  std::function<void(const std::optional<std::string>& leader, const absl::Status& why)>
      on_not_leading;
};

// One candidate among the controllers of a cluster: an ElectionMachine that runs against etcd.
// Thread-safe.
class LeaderElection {
 public:
  struct Options {
    EtcdClient::Options etcd;
    std::string cluster = "default";
    std::string identity;  // of the cluster, as its store has found it
    std::string address;   // that others are told, without a space
    // In whole seconds; etcd has a minimum of its own, which is 2 s by default.
    absl::Duration lease_time = absl::Seconds(5);
  };

  // Takes part from now on. InvalidArgument: malformed options; ResourceExhausted: no descriptors.
  static absl::StatusOr<std::unique_ptr<LeaderElection>> Start(const Options& options,
                                                               LeadershipListener listener);
  // As if the process ended: others wait for the end of the lease.
  ~LeaderElection();

  // Does a term last at this moment? False at its end, even before that is told: a process that was
  // stopped and goes on may ask.
  bool leads() const;

  // Ends the term, if there is one, and lets others lead at once. Returns when that is so, or after
  // `wait`: then others wait for the end of the lease. Nothing is told after that. Repeatable.
  void Resign(absl::Duration wait);

 private:
  LeaderElection(const Options& options, LeadershipListener listener,
                 std::unique_ptr<EtcdClient> client);

  // On the loop, like all that follows.
  void Handle(const ElectionEvent& event);
  void Perform(const std::vector<ElectionAction>& actions);
  void Do(const ReadElection& action);
  void Do(const ObtainLease& action);
  void Do(const Campaign& action);
  void Do(const RenewLease& action);
  void Do(const RevokeLease& action);
  void Do(const WatchLeader& action);
  void Do(const StopWatching& action);
  void Do(const WakeAt& action);
  void Do(const TellLeading& action);
  void Do(const TellNotLeading& action);
  void Do(const TellResigned& action);

  // From any thread.
  void Post(ElectionEvent event);

  static constexpr int64_t kNever = std::numeric_limits<int64_t>::min();

  const Options options_;
  const LeadershipListener listener_;
  const EtcdKeys keys_;
  const std::string incarnation_;
  const absl::Duration call_timeout_;
  const RealClock clock_;
  const std::unique_ptr<EtcdClient> client_;
  std::unique_ptr<EventLoop> loop_;
  std::atomic<int64_t> leads_until_ns_ = kNever;  // on the monotonic clock

  // Confined to the loop.
  ElectionMachine machine_;
  TimerId wake_;
  std::function<void()> cancel_watch_;
  int64_t watches_ = 0;  // what an earlier one tells does not count

  Mutex mutex_;
  CondVar has_resigned_;
  bool resigned_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace crossmesh

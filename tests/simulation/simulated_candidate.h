#pragma once

#include "controller/leadership/election_machine.h"
#include "tests/simulation/simulated_etcd.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <absl/time/time.h>

namespace crossmesh {

// What LeaderElection does, by steps of a process: the real ElectionMachine and its requests,
// against the simulated etcd.
class SimulatedCandidate {
 public:
  struct Listener {
    std::function<void(uint64_t epoch, int64_t fence)> on_leading;
    std::function<void()> on_not_leading;
  };

  SimulatedCandidate(SimulatedNode& node, SimulatedEtcdCalls& calls, Listener listener);
  void Start() { Perform(machine_.Start(Now())); }

 private:
  absl::Duration Now() const { return node_.clock().Monotonic(); }
  void Handle(const ElectionEvent& event) { Perform(machine_.Handle(event, Now())); }
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
  void Do(const TellResigned& /*action*/) {}

  SimulatedNode& node_;
  SimulatedEtcdCalls& calls_;
  const Listener listener_;
  const std::string incarnation_;
  ElectionMachine machine_;
  int64_t wakes_ = 0;
  int64_t watches_ = 0;
  std::shared_ptr<SimulatedStream> watch_;
  const std::shared_ptr<const bool> is_there_ = std::make_shared<const bool>(true);
};

}  // namespace crossmesh

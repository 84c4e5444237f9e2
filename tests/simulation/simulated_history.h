#pragma once

#include "crossmesh/v1/operation_service.pb.h"
#include "tests/simulation/sample_reshards.h"
#include "tests/simulation/simulated_world.h"

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <absl/strings/string_view.h>
#include <absl/time/time.h>

namespace crossmesh {

// What has happened as clients, users of memory and etcd see it, and what must never be. The first
// violation counts.
class SimulatedHistory {
 public:
  SimulatedHistory(SimulatedWorld& world, const std::vector<SampleReshard>& reshards)
      : world_(world), reshards_(reshards) {}

  const std::optional<std::string>& violation() const { return violation_; }
  void Violated(std::string what);

  // The place of a device in the reshard's destinations, of a worker in this life.
  struct Place {
    int reshard = 0;
    size_t destination = 0;
    int64_t life = 0;
    friend auto operator<=>(const Place&, const Place&) = default;
  };
  // A process reads the destination after it has changed. Nothing: it is no version at all.
  void OnDestination(const Place& place, std::optional<int64_t> version);

  // A client asks for a version by this request, now or again.
  void OnRequest(int reshard, int64_t version);
  // A controller has told a client of an operation, which began of this request.
  void OnTold(int reshard, int64_t version, const v1::Operation& operation);
  // The controller of this epoch says so now, to whomever.
  void OnSaid(const v1::Operation& said, uint64_t epoch);
  // A controller does not know an operation that a client was told of.
  void OnUnknown(const std::string& id);

  // A counter in the store was read by the controller of this epoch; a client was told that it has
  // counted to `value`, which nobody else has.
  void OnCounterRead(int64_t value, uint64_t epoch);
  void OnCounted(int64_t value);

  // A controller asks a worker to start a task of this operation.
  void OnStart(const std::string& operation) { started_.insert(operation); }
  bool HasStarted(const std::string& operation) const { return started_.contains(operation); }

  // A worker has obeyed a controller of this epoch: started, adopted or committed something.
  void OnObeyed(const std::string& worker, uint64_t epoch);
  // etcd or the disk has taken a commit of this epoch.
  void OnCommitted(uint64_t epoch);

  // When all that was asked for should have ended.
  void CheckAllEnded();

  uint64_t committed_epoch() const { return committed_epoch_; }
  int64_t ended() const { return ended_; }
  int64_t committed() const { return committed_; }

 private:
  struct Operation {
    std::string id;
    std::optional<v1::OperationState> end;
    std::vector<v1::ReplicaState> replicas;
    std::vector<int64_t> lives;  // by destination, when it was asked for
  };

  void OnEnd(int reshard, int64_t version, const v1::Operation& told);

  SimulatedWorld& world_;
  const std::vector<SampleReshard>& reshards_;
  std::optional<std::string> violation_;
  std::map<std::pair<int, size_t>, std::pair<int64_t, int64_t>> holds_;  // life and version
  std::map<std::pair<int, int64_t>, Operation> operations_;              // by reshard and version
  std::map<std::string, v1::OperationState> ends_;  // of which clients were told
  std::set<std::string> started_;
  std::map<std::string, uint64_t> obeyed_;
  uint64_t committed_epoch_ = 0;
  std::set<int64_t> counted_;
  int64_t ended_ = 0;
  int64_t committed_ = 0;
};

}  // namespace crossmesh

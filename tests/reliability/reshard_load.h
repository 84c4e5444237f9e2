#pragma once

#include "client/client.h"
#include "tests/live/live_cluster.h"
#include "tests/live/reshard_case.h"
#include "tests/reliability/starts.h"
#include "tests/reliability/violations.h"

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>

namespace crossmesh {

// A client that asks for one reshard after the other between the same storages, each of a new
// version of the source, and holds what it was told against what lies at the destination: a replica
// that committed has the version, one that failed has that or the one before, and none is mixed.
// Confined to its thread, but for `done`.
class ReshardLoad {
 public:
  // All outlive it.
  struct Environment {
    LiveCluster& cluster;
    const Starts& starts;
    Violations& violations;
  };
  struct Counts {
    std::map<std::string, int> ended;  // operations, by their state
    int refused = 0;                   // that never began
  };

  ReshardLoad(const Environment& environment, ReshardOptions options);

  // Until it is stopped. After the last one all its operations have ended.
  void Run(const std::atomic<bool>& stop);
  // Once the cluster is whole again: is every operation that ended remembered as it ended?
  void CheckRecords();

  const Counts& counts() const { return counts_; }

 private:
  // The memory of workers that were started again. False: some worker is away.
  bool Prepare();
  void Step();
  void CheckOutcome(const v1::Operation& operation, const std::map<std::string, int>& starts);
  void CheckReceiver(const v1::Operation& operation, const std::string& worker, bool committed);

  const Environment environment_;
  const ReshardOptions options_;
  Client client_;
  std::unique_ptr<ReshardCase> reshard_;     // null until all workers are there
  std::map<std::string, int> prepared_;      // how often each was started when it was prepared
  std::map<std::string, uint8_t> versions_;  // that lie at the destination, by worker
  uint8_t version_ = 0;
  std::map<std::string, v1::Operation> ended_;  // by id
  Counts counts_;
};

}  // namespace crossmesh

#pragma once

#include "tests/live/live_cluster.h"
#include "tests/reliability/ended_operations.h"
#include "tests/reliability/starts.h"
#include "tests/reliability/violations.h"

#include <atomic>
#include <string>

namespace crossmesh {

// What clients of one run share. All outlive it.
struct LoadEnvironment {
  LiveCluster& cluster;
  const Starts& starts;
  Violations& violations;
  EndedOperations& ended;
};

// A client that asks a cluster for work, again and again, while its daemons are killed, and holds
// what it was told against what it finds. Confined to its thread.
class Load {
 public:
  virtual ~Load() = default;

  // Until it is stopped. All that it has asked for has ended then.
  virtual void Run(const std::atomic<bool>& stop) = 0;
  // Once the cluster is whole again: is all still so as it was told?
  virtual void Check() = 0;
  // What became of it, for people: "COMMITTED 3, refused 1".
  virtual std::string Summary() const = 0;
};

}  // namespace crossmesh

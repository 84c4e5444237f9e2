#pragma once

#include "client/client.h"

#include <map>
#include <string>
#include <vector>

#include <absl/status/statusor.h>
#include <absl/time/time.h>

namespace crossmesh {

// A cluster as one look at its controller shows it.
struct ClusterView {
  v1::Controller controller;
  v1::Network network;
  std::vector<v1::Worker> workers;        // by name
  std::vector<v1::Operation> operations;  // newest first, at most kJobsLookedAt
  std::vector<v1::PipelineRun> runs;      // likewise
  absl::Duration taken;                   // when, on a monotonic clock
  std::string address;                    // that was asked

  // By the name of the state.
  std::map<std::string, int> WorkersByState() const;
};

inline constexpr int64_t kJobsLookedAt = 100;

absl::StatusOr<ClusterView> LookAtCluster(Client& client, absl::Duration now);

}  // namespace crossmesh

#pragma once

#include "common/testing/status_matchers.h"
#include "controller/membership/worker_registry.h"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <absl/status/statusor.h>
#include <gtest/gtest.h>

namespace crossmesh {

inline WorkerRecord RecordOf(std::string name, std::vector<DeviceId> devices,
                             uint64_t incarnation = 1) {
  WorkerRecord record;
  record.name = std::move(name);
  record.incarnation = incarnation;
  record.devices = std::move(devices);
  record.execution_address = "at-" + record.name;
  return record;
}

// The number of its session; a refusal fails the test.
inline uint64_t Join(WorkerRegistry& registry, WorkerRecord record) {
  const absl::StatusOr<uint64_t> session = registry.Register(std::move(record));
  EXPECT_OK(session);
  return *session;
}

class DeafMembershipListener : public MembershipListener {
 public:
  void OnWorkerLost(const WorkerRecord& /*worker*/, const absl::Status& /*why*/) override {}
  void OnWorkerReady(const WorkerRecord& /*worker*/) override {}
  void OnGpuProcessLost(const RankName& /*process*/, const absl::Status& /*why*/) override {}
};

}  // namespace crossmesh

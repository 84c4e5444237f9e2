#pragma once

#include "controller/dispatch/attempt_communicators.h"
#include "controller/dispatch/planned_reshard.h"
#include "controller/dispatch/remainder.h"
#include "controller/dispatch/task_connection.h"
#include "controller/membership/worker_registry.h"
#include "controller/operation/operation_machine.h"
#include "crossmesh/v1/operation_service.pb.h"

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <absl/container/btree_map.h>
#include <absl/status/status.h>
#include <absl/time/time.h>

namespace crossmesh {

// A planning of what remains of an operation, the workers that carry it out, and the tasks that it
// became. Thread-compatible.
struct OperationAttempt {
  // Owners of the plan's devices, by name. FailedPrecondition: one of a release that does not know
  // of what the plan has.
  absl::Status SetWorkers(std::vector<WorkerRecord> owners);
  // Once it is cut: the workers that take part, and what each is responsible for.
  std::vector<WorkerShare> MakeShares() const;
  // What all workers that take part are told: `common`, and what this attempt adds.
  std::shared_ptr<const v1::ExecuteRequest::Start> MakeStart(
      const v1::ExecuteRequest::Start& common, const std::vector<WorkerShare>& shares) const;
  // The place of a worker that is there.
  size_t IndexOf(const std::string& worker) const;
  // Devices of that worker that receive.
  std::vector<DeviceRank> DestinationsOf(size_t worker) const;
  // The parts live as long as the part that points into them.
  std::shared_ptr<const WorkerPart> PartOf(size_t worker) const {
    return {parts, &(*parts)[worker]};
  }

  // There must be one.
  TaskConnection& Task(const std::string& worker) const;
  // What tasks have moved by their reports, or by their workers' heartbeats where these say more.
  int64_t MovedBytes() const;
  void AddReports(v1::OperationReport& report) const;
  // What is to be planned again, without workers of these names.
  Remainder RemainderOf(const std::set<int32_t>& replicas,
                        const std::set<std::string>& without) const;
  // Says so when the task that ended has found communicators broken.
  void TellBroken(const TaskEnded& ended);
  // Other operations may have them. What a task may still use is of no use to others.
  void ReturnCommunicators();

  uint32_t number = 1;
  std::shared_ptr<AttemptCommunicators> communicators;
  std::shared_ptr<const PlannedReshard> planned = nullptr;
  std::vector<int32_t> replica_numbers = {};  // of the plan's replicas, in the operation
  std::vector<WorkerRecord> workers = {};
  PlannedReshard::DevicesOfWorkers devices = {};                 // of the plan's, by worker
  std::shared_ptr<const PlannedReshard::Parts> parts = nullptr;  // by worker
  std::shared_ptr<const v1::ExecuteRequest::Start> start = nullptr;
  absl::btree_map<std::string, std::shared_ptr<TaskConnection>> tasks = {};
  std::set<std::string> told_lost = {};                    // workers, of which the others were told
  absl::btree_map<std::string, int64_t> moved_bytes = {};  // by worker, as told by heartbeats
};

}  // namespace crossmesh

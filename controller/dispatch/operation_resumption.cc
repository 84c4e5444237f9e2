#include "controller/dispatch/operation_resumption.h"

#include "common/base/digest.h"
#include "common/wire/status_code.h"
#include "common/wire/time_codec.h"
#include "controller/dispatch/operation_attempt.h"
#include "controller/dispatch/operation_plan.h"
#include "controller/operation/operation_machine.h"

#include <algorithm>
#include <utility>

#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

using Resumption = stored::v1::OperationResumption;

Resumption::Worker WorkerOf(const OperationAttempt& attempt, const std::string& name) {
  const size_t index = attempt.IndexOf(name);
  Resumption::Worker worker;
  worker.set_name(name);
  worker.set_execution_address(attempt.workers[index].execution_address);
  worker.set_part_digest(attempt.PartOf(index)->digest().ToString());
  return worker;
}

// `replicas`: of the operation.
bool Fits(const Resumption::Worker& worker, int replicas) {
  const auto is_replica = [replicas](int32_t replica) {
    return replica >= 0 && replica < replicas;
  };
  return worker.devices_size() == worker.replicas_size() &&
         std::ranges::all_of(worker.replicas(), is_replica) &&
         Digest::Parse(worker.part_digest()).has_value();
}

bool Fits(const v1::Operation& shown, const Resumption& resumption) {
  if (resumption.attempts_size() != shown.attempt() || shown.attempt() == 0) return false;
  if (!FromProto(shown.deadline()).ok()) return false;
  if (resumption.plan().replica_bytes_size() != shown.replicas_size()) return false;
  for (const Resumption::Attempt& attempt : resumption.attempts()) {
    for (const Resumption::Worker& worker : attempt.workers()) {
      if (!Fits(worker, shown.replicas_size())) return false;
    }
  }
  return true;
}

ReplicaState StateOf(v1::ReplicaState state) {
  switch (state) {
    case v1::REPLICA_STATE_COMMITTED:
      return ReplicaState::kCommitted;
    case v1::REPLICA_STATE_FAILED:
      return ReplicaState::kFailed;
    default:
      return ReplicaState::kReceiving;
  }
}

}  // namespace

Resumption MakeResumption(std::span<const OperationAttempt> attempts,
                          const std::vector<WorkerShare>& shares, const OperationPlan& plan) {
  Resumption resumption;
  for (const OperationAttempt& attempt : attempts) {
    Resumption::Attempt& out = *resumption.add_attempts();
    out.set_epoch(attempt.start->epoch());
    out.set_has_communicators(attempt.start->communicators_size() > 0);
    for (const auto& [name, task] : attempt.tasks) *out.add_workers() = WorkerOf(attempt, name);
  }
  for (const WorkerShare& share : shares) {
    Resumption::Attempt& present = *resumption.mutable_attempts()->rbegin();
    Resumption::Worker& worker = *present.add_workers();
    worker = WorkerOf(attempts.back(), share.worker);
    for (const auto& [device, replica] : share.replica_of_device) {
      worker.add_devices(device);
      worker.add_replicas(replica);
    }
  }
  resumption.set_operation(attempts.back().start->operation());
  Resumption::Plan& told = *resumption.mutable_plan();
  told.set_strategy(plan.strategy);
  told.set_assumed_rates(plan.assumed_rates);
  *told.mutable_report() = plan.report;
  for (const auto& replica : plan.replicas) told.add_replica_bytes(replica.bytes);
  return resumption;
}

absl::StatusOr<Resumption> ParseResumption(const v1::Operation& shown, absl::string_view bytes) {
  Resumption resumption;
  if (bytes.empty()) return resumption;
  if (resumption.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())) &&
      Fits(shown, resumption)) {
    return resumption;
  }
  return absl::DataLossError(absl::StrCat("stored operation ", shown.id(),
                                          ": expected what takes up its attempt ", shown.attempt(),
                                          ", found something else"));
}

OperationPlan PlanOf(const v1::Operation& shown, const Resumption& resumption) {
  OperationPlan plan{.id = shown.plan_id(),
                     .total_bytes = shown.total_bytes(),
                     .strategy = resumption.plan().strategy(),
                     .assumed_rates = resumption.plan().assumed_rates(),
                     .report = resumption.plan().report()};
  for (int i = 0; i < shown.replicas_size(); ++i) {
    plan.replicas.push_back(
        {.bytes = resumption.plan().replica_bytes(i), .devices = shown.replicas(i).devices()});
  }
  return plan;
}

LeftOperation LeftOf(const v1::Operation& shown, const Resumption& resumption) {
  LeftOperation left{.attempt = static_cast<uint32_t>(resumption.attempts_size()),
                     .error = StatusFromCode(shown.error_code(), shown.error())};
  for (const v1::Replica& replica : shown.replicas()) {
    const absl::Status error =
        replica.error().empty() ? absl::OkStatus() : absl::UnknownError(replica.error());
    left.replicas.push_back({StateOf(replica.state()), error});
  }
  for (const Resumption::Worker& worker : resumption.attempts().rbegin()->workers()) {
    WorkerShare& share = left.shares.emplace_back(WorkerShare{.worker = worker.name()});
    for (int i = 0; i < worker.devices_size(); ++i) {
      share.replica_of_device[worker.devices(i)] = worker.replicas(i);
    }
  }
  for (uint32_t number = 1; number < left.attempt; ++number) {
    for (const Resumption::Worker& worker : resumption.attempts(number - 1).workers()) {
      left.earlier_tasks.emplace_back(worker.name(), number);
    }
  }
  return left;
}

v1::ExecuteRequest::Adopt AdoptionOf(const Resumption& resumption, uint32_t attempt,
                                     const Resumption::Worker& worker) {
  v1::ExecuteRequest::Adopt adopt;
  adopt.set_operation(resumption.operation());
  adopt.set_epoch(resumption.attempts(attempt - 1).epoch());
  adopt.set_attempt(attempt);
  adopt.set_part_digest(worker.part_digest());
  return adopt;
}

}  // namespace crossmesh

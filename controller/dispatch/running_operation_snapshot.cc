// A running operation as its sink sees it.

#include "controller/dispatch/running_operation.h"

#include <algorithm>

namespace crossmesh {

void RunningOperation::Publish() {
  changed_ = false;
  ++revision_;
  environment_.sink.OnChange(Snapshot());
}

int64_t RunningOperation::MovedBytes() const {
  int64_t moved = 0;
  for (const Attempt& attempt : attempts_) {
    for (const auto& [worker, task] : attempt.tasks) {
      const TaskFigures& figures = task->figures();
      const auto told = attempt.moved_bytes.find(worker);
      moved += std::max(figures.received_bytes + figures.copied_bytes,
                        told == attempt.moved_bytes.end() ? 0 : told->second);
    }
  }
  return moved;
}

OperationSnapshot RunningOperation::Snapshot() const {
  OperationSnapshot snapshot{.id = request_.id,
                             .state = state(),
                             .revision = revision_,
                             .deadline = deadline_,
                             .create_time = create_time_};
  if (!attempts_.empty()) snapshot.planned = attempts_.front().planned;
  if (!machine_.has_value()) return snapshot;
  snapshot.attempt = machine_->attempt();
  snapshot.error = machine_->error();
  for (const OperationMachine::Replica& replica : machine_->replicas()) {
    snapshot.replicas.push_back({replica.state, replica.error});
  }
  const int64_t total =
      snapshot.planned == nullptr ? 0 : snapshot.planned->proof().destination_bytes;
  snapshot.moved_bytes =
      state() == OperationState::kCommitted ? total : std::min(total, MovedBytes());
  return snapshot;
}

OperationReport RunningOperation::Report() const {
  const absl::Duration now = environment_.clock.Monotonic();
  OperationReport report{.plan_cached = request_.planned != nullptr};
  report.total = now - begin_;
  if (attempts_.empty() || attempts_.front().planned == nullptr) return report;
  const PlannedReshard& planned = *attempts_.front().planned;
  if (!report.plan_cached) report.plan = planned.plan_time();
  for (size_t i = 0; i < planned.replicas().size(); ++i) {
    if (machine_->replicas()[i].state == ReplicaState::kCommitted) {
      report.destination_bytes += planned.replicas()[i].bytes;
    }
  }
  if (!acceptance_times_.empty()) {
    report.dispatch = accepted_ - dispatched_;
    std::vector<absl::Duration> times = acceptance_times_;
    const auto middle = times.begin() + static_cast<int64_t>(times.size() / 2);
    std::nth_element(times.begin(), middle, times.end());
    report.first_byte = *middle;
  }
  if (verified_ > accepted_) report.transfer = verified_ - accepted_;
  if (verified_ > absl::ZeroDuration()) report.commit = now - verified_;
  for (const Attempt& attempt : attempts_) {
    for (const auto& [worker, task] : attempt.tasks) {
      TaskFigures& sum = report.workers[worker];
      const TaskFigures& figures = task->figures();
      sum.sent_bytes += figures.sent_bytes;
      sum.received_bytes += figures.received_bytes;
      sum.copied_bytes += figures.copied_bytes;
      sum.bind_seconds += figures.bind_seconds;
      sum.move_seconds += figures.move_seconds;
      sum.pack_seconds += figures.pack_seconds;
      sum.unpack_seconds += figures.unpack_seconds;
      sum.checksum_seconds += figures.checksum_seconds;
      sum.links.insert(sum.links.end(), figures.links.begin(), figures.links.end());
      sum.gpu_libraries.insert(figures.gpu_libraries.begin(), figures.gpu_libraries.end());
    }
  }
  return report;
}

}  // namespace crossmesh

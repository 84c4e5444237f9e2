// What clients see of an operation, and what is recorded of its end.

#include "common/base/log.h"
#include "common/metrics/controller_metrics.h"
#include "common/wire/time_codec.h"
#include "controller/dispatch/operation_attempt.h"
#include "controller/dispatch/operation_message.h"
#include "controller/dispatch/operation_plan.h"
#include "controller/dispatch/operation_times.h"
#include "controller/dispatch/running_operation.h"
#include "controller/dispatch/task_connection.h"

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include <absl/time/time.h>

namespace crossmesh {
namespace {

// Of a link that has failed the receiving end waits a quarter of the stall limit longer.
constexpr int kPartOfStallLimit = 4;
constexpr absl::Duration kWordPause = absl::Milliseconds(500);

}  // namespace

void RunningOperation::HearEnd(uint32_t number, const TaskEnded& ended) {
  OperationAttempt& attempt = attempts_[number - 1];
  attempt.TellBroken(ended);
  for (const std::string& peer : ended.lost_peers) {
    // Of one that is gone, or has refused, it was told so.
    if (attempt.told_lost.contains(peer)) continue;
    environment_.workers.LinkFailed(
        ended.worker, peer, ended.status.ok() ? "no bytes got through" : ended.status.message());
  }
}

void RunningOperation::Do(const AwaitWord& action) {
  const absl::Duration stall_limit =
      crossmesh::FromProto(request_.start.stall_limit()).value_or(absl::ZeroDuration());
  environment_.queue.PostAfter(stall_limit / kPartOfStallLimit + kWordPause,
                               [weak = weak_from_this(), attempt = action.attempt] {
                                 const std::shared_ptr<RunningOperation> self = weak.lock();
                                 if (self != nullptr && !self->finished_)
                                   self->Feed(WordAwaited{attempt});
                               });
}

// Only when all is there: what was sent over a link before it failed says nothing.
void RunningOperation::TellLinksThatWork() {
  if (state() != OperationState::kCommitted || attempts_.size() != 1) return;
  for (const auto& [worker, task] : attempts_.front().tasks) {
    if (!task->report().has_value()) continue;
    std::vector<std::string> peers;
    for (const v1::TaskReport::Link& link : task->report()->links()) {
      if (link.sent_bytes() > 0) peers.push_back(link.peer());
    }
    environment_.workers.LinksWorked(worker, peers);
  }
}

void RunningOperation::Publish() {
  changed_ = false;
  shown_.set_revision(shown_.revision() + 1);
  Show();
  environment_.sink.OnChange(std::make_shared<const v1::Operation>(shown_));
}

void RunningOperation::Show() {
  shown_.set_state(crossmesh::ToProto(state()));
  if (deadline_ > absl::ZeroDuration()) *shown_.mutable_deadline() = crossmesh::ToProto(deadline_);
  if (plan_ != nullptr) {
    shown_.set_plan_id(plan_->id);
    shown_.set_total_bytes(plan_->total_bytes);
  }
  if (!machine_.has_value()) return;
  shown_.set_attempt(static_cast<int32_t>(machine_->attempt()));
  shown_.set_error(std::string(machine_->error().message()));
  shown_.set_error_code(static_cast<int32_t>(machine_->error().code()));
  SetReplicas(machine_->replicas(), plan_.get(), shown_);
  int64_t moved = 0;
  for (const OperationAttempt& attempt : attempts_) moved += attempt.MovedBytes();
  const bool committed = state() == OperationState::kCommitted;
  shown_.set_moved_bytes(committed ? shown_.total_bytes() : std::min(shown_.total_bytes(), moved));
}

v1::OperationReport RunningOperation::Report() const {
  v1::OperationReport report;
  if (plan_ != nullptr) {
    report = plan_->report;
    report.set_destination_bytes(CommittedBytes(machine_->replicas(), *plan_));
  }
  report.set_plan_cached(request_.planned != nullptr);
  if (!attempts_.empty() && attempts_.front().planned != nullptr && !report.plan_cached()) {
    report.set_plan_seconds(absl::ToDoubleSeconds(attempts_.front().planned->plan_time()));
  }
  for (const OperationAttempt& attempt : attempts_) attempt.AddReports(report);
  times_->WriteTo(report);
  if (plan_ != nullptr) AddSlowLinks(*plan_, report);
  return report;
}

// Before watchers hear of the end, so that what they scrape then counts it.
void RunningOperation::RecordEnd(const v1::OperationReport& report) {
  ControllerMetrics::OperationFacts facts = FactsOf(state(), report);
  if (plan_ != nullptr) facts.strategy = plan_->strategy;
  if (report.dispatch_seconds() > 0) {
    environment_.metrics.Dispatched(absl::Seconds(report.dispatch_seconds()));
  }
  environment_.metrics.OperationEnded(facts);
  LogInfo("operation_ended", {{"operation_id", shown_.id()},
                              {"state", OperationStateName(state())},
                              {"attempt", shown_.attempt()},
                              {"seconds", report.total_seconds()},
                              {"error", shown_.error()}});
}

}  // namespace crossmesh

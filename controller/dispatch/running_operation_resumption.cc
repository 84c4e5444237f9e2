// How an operation that a former controller has left is taken up: its tasks are adopted where they
// run, and what they say decides, by the same machine. Nothing is planned.

#include "common/base/log.h"
#include "common/wire/time_codec.h"
#include "controller/dispatch/attempt_communicators.h"
#include "controller/dispatch/operation_attempt.h"
#include "controller/dispatch/operation_plan.h"
#include "controller/dispatch/operation_resumption.h"
#include "controller/dispatch/running_operation.h"
#include "controller/dispatch/start_gate.h"
#include "controller/dispatch/task_connection.h"

#include <utility>

#include <absl/strings/str_cat.h>

namespace crossmesh {

using stored::v1::OperationResumption;

void RunningOperation::TakeUp() {
  const OperationResumption& resumption = *request_.resumption;
  if (resumption.attempts().empty()) {
    machine_.emplace(0);
    return FailPlanning(absl::UnavailableError(
        "its controller ended before it was planned, and nothing of it was begun; ask again"));
  }
  LogInfo("operation_taken_up",
          {{"operation_id", shown_.id()}, {"attempt", resumption.attempts_size()}});
  hold_ = environment_.gate.Shut();
  plan_ = std::make_shared<const OperationPlan>(PlanOf(shown_, resumption));
  machine_.emplace(LeftOf(shown_, resumption));
  // Workers end the tasks at the deadline that they were given; this one is for those that say
  // nothing. No clock tells how much of it the former controller has used.
  StartDeadline(*FromProto(shown_.deadline()));
  TakeUpAttempts();
  environment_.queue.PostAfter(kAdoptLimit, [weak = weak_from_this()] {
    if (const auto self = weak.lock()) self->LoseUnheard();
  });
  Feed(IntentCommitted{});
}

void RunningOperation::TakeUpAttempts() {
  for (const OperationResumption::Attempt& left : request_.resumption->attempts()) {
    OperationAttempt& attempt = AddAttempt();
    for (const OperationResumption::Worker& worker : left.workers()) {
      attempt.workers.push_back(
          {.name = worker.name(), .execution_address = worker.execution_address()});
    }
  }
  // Tasks of earlier attempts have ended, and are there to be acknowledged.
  for (uint32_t number = 1; number < attempts_.size(); ++number) {
    for (const auto& worker :
         request_.resumption->attempts(static_cast<int>(number) - 1).workers()) {
      const auto connection = std::make_shared<TaskConnection>(Adoption(number, worker));
      attempts_[number - 1].tasks[worker.name()] = connection;
      connection->Begin();
    }
  }
}

TaskConnectionOptions RunningOperation::Adoption(uint32_t attempt,
                                                 const OperationResumption::Worker& worker) {
  TaskConnectionOptions options = Connection(worker.name(), attempt);
  options.address = worker.execution_address();
  options.destinations = {worker.devices().begin(), worker.devices().end()};
  options.adopt = AdoptionOf(*request_.resumption, attempt, worker);
  options.adopt->set_operation_id(shown_.id());
  options.adopt->set_by_epoch(environment_.epoch);
  return options;
}

void RunningOperation::Adopt(const StartTask& action) {
  OperationAttempt& attempt = attempts_.back();
  const auto& workers = request_.resumption->attempts().rbegin()->workers();
  const auto& worker = workers.at(static_cast<int>(attempt.IndexOf(action.worker)));
  const auto connection = std::make_shared<TaskConnection>(Adoption(action.attempt, worker));
  attempt.tasks[action.worker] = connection;
  connection->Begin();
}

void RunningOperation::LoseUnheard() {
  if (finished_ || attempts_.size() > static_cast<size_t>(request_.resumption->attempts_size())) {
    return;
  }
  for (const std::string& worker : machine_->Unheard()) {
    Feed(WorkerLost{worker, absl::UnavailableError(
                                absl::StrCat("no word within ", absl::FormatDuration(kAdoptLimit),
                                             " of the controller that takes its task up"))});
  }
}

void RunningOperation::PlanNoMore() {
  AddAttempt();
  environment_.queue.Post([weak = weak_from_this()] {
    if (const auto self = weak.lock()) {
      self->FailPlanning(absl::UnavailableError(
          "the controller that planned it has ended, and what is missing is not planned again"));
    }
  });
}

void RunningOperation::OpenGate() {
  if (hold_ == nullptr || !machine_->Unheard().empty()) return;
  // Only one operation at a time may use a GPU, and the leases of these are not known here.
  if (request_.resumption->attempts().rbegin()->has_communicators() && !finished_) return;
  hold_.reset();
}

}  // namespace crossmesh

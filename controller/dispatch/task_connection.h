#pragma once

#include "common/plan/worker_part.h"
#include "controller/dispatch/task_queue.h"
#include "controller/dispatch/worker_gateway.h"
#include "controller/operation/operation_machine.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <absl/functional/any_invocable.h>
#include <absl/status/status.h>
#include <absl/time/time.h>

namespace crossmesh {

// What a TaskConnection is made of.
struct TaskConnectionOptions {
  TaskGateway& gateway;
  TaskQueue& queue;
  std::string worker;
  std::string address;
  // The same in every call, since a worker compares; all but the part is the same for all
  // workers.
  std::shared_ptr<const v1::ExecuteRequest::Start> start;
  std::shared_ptr<const WorkerPart> part;
  // In place of both: the task of a former controller.
  std::optional<v1::ExecuteRequest::Adopt> adopt;
  absl::Duration deadline;               // of the task
  std::vector<DeviceRank> destinations;  // devices of this worker that receive
  // TaskAccepted, DeviceDone, TaskEnded, DevicesResolved, WorkerLost; on the queue, in order;
  // some of them again after a broken call.
  absl::AnyInvocable<void(OperationEvent)> on_event;
};

// One worker's task in one attempt, through as many calls as it takes: a call that breaks while the
// task is needed is made again, which attaches to the task, and what the worker has not answered is
// said again. Refusals, and a worker that cannot be reached, become events like any other.
//
// Confined to the queue. Shared by the operation and by the call in progress, so that a last word
// still leaves when the operation is over.
class TaskConnection : public std::enable_shared_from_this<TaskConnection> {
 public:
  static constexpr absl::Duration kFirstPause = absl::Milliseconds(100);
  static constexpr absl::Duration kPauseMax = absl::Seconds(1);
  // Calls in a row that break without a word from the worker, before it counts as lost.
  static constexpr int kBrokenCallsMax = 6;
  // Time that the worker has to end a call that is acknowledged.
  static constexpr absl::Duration kAcknowledgeLimit = absl::Seconds(30);

  // Time past the task's deadline in which its last words can still be said.
  static constexpr absl::Duration kCallGrace = absl::Minutes(2);

  using Options = TaskConnectionOptions;

  explicit TaskConnection(Options options) : options_(std::move(options)) {}

  void Begin() { Call(); }
  void Cancel(const std::string& reason);
  void Resolve(const std::vector<DeviceRank>& devices, bool commit);
  void PeerLost(const std::string& worker, const std::string& reason);
  // The last word. It is not said again when it gets lost: a worker that has heard it would take
  // the task for a new one.
  void Acknowledge();
  // The operation does not wait for this task any more. When the worker can be reached after all,
  // the task is cancelled, then abandoned and acknowledged.
  void LetGo();
  // The task is another controller's from now on: breaks the call off, and leaves it as it is.
  void Leave();

  // Nothing before the task has reported.
  const std::optional<v1::TaskReport>& report() const { return report_; }
  // Reported or refused: the worker does nothing for it any more.
  bool ended() const { return ended_; }

 private:
  void Call();
  WorkerCallStart<v1::ExecuteRequest> FirstWords() const;
  // What the present call says.
  void OnMessage(v1::ExecuteResponse response);
  void OnAccepted();
  void OnReport(v1::TaskReport report);
  void OnResolved(const v1::ExecuteResponse::Resolved& resolved);
  void OnCallEnded(const absl::Status& status);
  void Say(v1::ExecuteRequest request);
  void FinishLettingGo();
  void Emit(OperationEvent event) { options_.on_event(std::move(event)); }

  Options options_;
  std::unique_ptr<WorkerCall<v1::ExecuteRequest>> call_;  // null while there is none
  uint64_t call_number_ = 0;
  int broken_calls_ = 0;
  bool accepted_ = false;
  bool as_receiver_ = false;  // a refusal that comes is of its destinations only
  bool ended_ = false;
  bool acknowledged_ = false;
  bool let_go_ = false;
  std::optional<v1::TaskReport> report_;
  TaskQueue::Timer acknowledge_timer_;
  // What a next call says again: all but the resolutions that were answered.
  std::vector<v1::ExecuteRequest> said_;
};

}  // namespace crossmesh

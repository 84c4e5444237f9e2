#include "tests/simulation/simulated_session.h"

#include "tests/simulation/simulated_controller.h"
#include "worker/tasks/task_table.h"

#include <algorithm>
#include <utility>

#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

// So much later a side hears that it has ended a call itself.
constexpr absl::Duration kOverAfter = absl::Microseconds(1);

absl::string_view LabelOf(const v1::WorkerSessionRequest& request) {
  if (request.has_register_()) return "is asked to register a worker";
  return request.has_heartbeat() ? "hears a heartbeat" : "hears a goodbye";
}

absl::string_view LabelOf(const v1::WorkerSessionResponse& response) {
  if (response.has_registered()) return "is registered";
  return response.has_operations_ended() ? "hears of ended operations" : "is asked to drain";
}

// The worker's end: side 0.
class WorkersEnd final : public SessionCall {
 public:
  using Listener = std::shared_ptr<const SessionCaller::Listener>;
  // Of the process of the controller; null until it has accepted.
  using Session = std::shared_ptr<std::shared_ptr<SimulatedWorkerSession>>;

  WorkersEnd(std::shared_ptr<SimulatedStream> stream, Listener listener, Session session)
      : stream_(std::move(stream)), listener_(std::move(listener)), session_(std::move(session)) {}

  void Send(v1::WorkerSessionRequest request) override {
    const absl::string_view label = LabelOf(request);
    stream_->Send(0, label, [session = session_, request = std::move(request)] {
      if (*session != nullptr) (*session)->Hear(request);
    });
  }
  void CloseWrites() override {
    stream_->Send(0, "hears that no more comes", [session = session_] {
      if (*session != nullptr) (*session)->OnRequestsEnd();
    });
  }
  void Cancel() override {
    if (!stream_->is_open(0)) return;
    const absl::Status cancelled = absl::CancelledError("given up");
    stream_->End(0, cancelled);
    stream_->node(0).After(kOverAfter,
                           [listener = listener_, cancelled] { listener->on_end(cancelled); });
  }

 private:
  const std::shared_ptr<SimulatedStream> stream_;
  const Listener listener_;
  const Session session_;
};

}  // namespace

void SimulatedWorkerSession::Tell(v1::WorkerSessionResponse response) {
  const absl::string_view label = LabelOf(response);
  stream_->Send(1, label, [on_response = on_response_, response = std::move(response)] {
    on_response(response);
  });
}

void SimulatedWorkerSession::Finish(absl::Status status) {
  if (!stream_->is_open(1)) return;
  stream_->End(1, status);
  const auto self = std::static_pointer_cast<SimulatedWorkerSession>(shared_from_this());
  stream_->node(1).After(kOverAfter, [self] {
    if (!self->is_dropped_) self->OnOver();
  });
}

void SimulatedWorkerSession::Drop(const absl::Status& why) {
  is_dropped_ = true;
  stream_->End(1, why);
}

void SimulatedWorkerSession::Hear(const v1::WorkerSessionRequest& request) {
  heard_at_ = stream_->node(1).clock().Monotonic();
  if (request.has_register_()) {
    worker_ = request.register_().worker();
    incarnation_ = request.register_().incarnation();
  }
  OnRequest(request);
}

absl::Status SimulatedSessionCaller::Check(const std::string& address) {
  const bool is_there = std::ranges::any_of(
      controllers_, [&](const auto* controller) { return controller->address() == address; });
  if (is_there) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("no controller is at ", address));
}

absl::StatusOr<std::shared_ptr<SessionCall>> SimulatedSessionCaller::Open(
    const std::string& address, Listener listener) {
  if (absl::Status known = Check(address); !known.ok()) return known;
  SimulatedController& controller = **std::ranges::find_if(
      controllers_, [&](const auto* candidate) { return candidate->address() == address; });
  const auto heard = std::make_shared<const Listener>(std::move(listener));
  const auto session = std::make_shared<std::shared_ptr<SimulatedWorkerSession>>();
  const std::shared_ptr<SimulatedStream> stream = network_.Open(
      node_, controller.node(),
      [&controller, heard, session](const std::shared_ptr<SimulatedStream>& accepted) {
        *session = controller.AcceptSession(
            accepted,
            [heard](const v1::WorkerSessionResponse& response) { heard->on_message(response); });
      });
  stream->Hear(0, [heard](const absl::Status& status) { heard->on_end(status); });
  return std::make_shared<WorkersEnd>(stream, heard, session);
}

void SimulatedSessionHost::MakeHeartbeat(uint64_t epoch, absl::AnyInvocable<void(Heartbeat)> done) {
  tasks_.CollectProgress(
      [this, epoch, done = std::move(done)](const std::vector<TaskTable::Progress>& tasks) mutable {
        Heartbeat heartbeat;
        for (const TaskTable::Progress& task : tasks) {
          v1::WorkerSessionRequest::TaskProgress& progress = *heartbeat.add_tasks();
          progress.set_operation_id(task.operation_id);
          progress.set_attempt(task.attempt);
          progress.set_moved_bytes(task.moved_bytes);
        }
        for (std::string& operation : tasks_.HeldOperations(epoch)) {
          heartbeat.add_held_operations(std::move(operation));
        }
        done(std::move(heartbeat));
      });
}

void SimulatedSessionHost::OnOperationsEnded(uint64_t epoch,
                                             const std::vector<std::string>& operations) {
  tasks_.GiveUp(operations, epoch);
}

}  // namespace crossmesh

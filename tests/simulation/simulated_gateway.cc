#include "tests/simulation/simulated_gateway.h"

#include "tests/simulation/simulated_worker.h"
#include "worker/tasks/execute_call.h"

#include <algorithm>
#include <string>
#include <utility>

namespace crossmesh {
namespace {

// The controller's end of a call.
class Call final : public SimulatedExecuteClient, public std::enable_shared_from_this<Call> {
 public:
  Call(WorkerCallStart<v1::ExecuteRequest> start, WorkerCallListener<v1::ExecuteResponse> listener)
      : epoch_(start.start.has_adopt() ? start.start.adopt().by_epoch()
                                       : start.start.start().epoch()),
        body_(std::move(start.body)),
        listener_(std::move(listener)) {}

  void Open(SimulatedNode& node, SimulatedNetwork& network, SimulatedWorker& worker) {
    worker_ = &worker;
    stream_ = network.Open(
        node, worker.node(),
        [self = shared_from_this(), &worker](const std::shared_ptr<SimulatedStream>& stream) {
          self->at_worker_ = worker.Accept(stream, self);
        });
    stream_->Hear(
        0, [self = shared_from_this()](const absl::Status& status) { self->TellEnd(status); });
  }
  void Send(v1::ExecuteRequest request) {
    stream_->Send(0, "gets an order for a task",
                  [self = shared_from_this(), request = std::move(request)] {
                    const std::shared_ptr<ExecuteCall> call = self->at_worker_.lock();
                    if (call == nullptr) return;
                    self->worker_->OnRequest(self->stream_, call, request, self->epoch_);
                  });
  }
  void OnResponse(const v1::ExecuteResponse& response) override {
    if (!response.has_need_part()) {
      if (listener_.on_message != nullptr) listener_.on_message(response);
      return;
    }
    const std::string bytes = body_();
    for (const size_t begin : {size_t{0}, bytes.size() / 2}) {
      v1::ExecuteRequest request;
      const bool is_last = begin > 0;
      request.mutable_piece()->set_data(is_last ? bytes.substr(begin)
                                                : bytes.substr(0, bytes.size() / 2));
      request.mutable_piece()->set_last(is_last);
      Send(std::move(request));
    }
  }
  void End(const absl::Status& status, bool tells) {
    if (!stream_->is_open(0)) return;
    stream_->End(0, status);
    tells ? TellEnd(status) : Drop();
  }
  // What hears of it may own the call.
  void Drop() { const auto dropped = std::exchange(listener_, {}); }

 private:
  void TellEnd(const absl::Status& status) {
    const auto listener = std::exchange(listener_, {});
    if (listener.on_end != nullptr) listener.on_end(status);
  }

  const uint64_t epoch_;
  const std::function<std::string()> body_;
  WorkerCallListener<v1::ExecuteResponse> listener_;  // none once it has ended
  SimulatedWorker* worker_ = nullptr;
  std::shared_ptr<SimulatedStream> stream_;
  std::weak_ptr<ExecuteCall> at_worker_;  // only used in its process
};

class OwnersEnd final : public WorkerCall<v1::ExecuteRequest> {
 public:
  explicit OwnersEnd(std::shared_ptr<Call> call) : call_(std::move(call)) {}
  ~OwnersEnd() override { call_->End(absl::CancelledError("broken off"), /*tells=*/false); }
  void Send(v1::ExecuteRequest request) override { call_->Send(std::move(request)); }
  void SendLast(v1::ExecuteRequest request) override { call_->Send(std::move(request)); }
  void Cancel() override { call_->End(absl::CancelledError("cancelled"), /*tells=*/true); }

 private:
  const std::shared_ptr<Call> call_;
};

}  // namespace

SimulatedTaskGateway::~SimulatedTaskGateway() { Stop(); }

void SimulatedTaskGateway::Stop() {
  for (const auto& [call, break_off] : std::exchange(break_off_, {})) {
    const std::shared_ptr<void> open = call.lock();
    if (open != nullptr) break_off();
  }
}

std::unique_ptr<WorkerCall<v1::ExecuteRequest>> SimulatedTaskGateway::Open(
    WorkerCallStart<v1::ExecuteRequest> start, WorkerCallListener<v1::ExecuteResponse> listener) {
  const auto worker = std::ranges::find_if(workers_, [&](const SimulatedWorker* candidate) {
    return candidate->address() == start.address;
  });
  v1::ExecuteRequest first = start.start;
  const absl::Duration time_max = start.time_max;
  const auto call = std::make_shared<Call>(std::move(start), std::move(listener));
  call->Open(node_, network_, **worker);
  std::erase_if(break_off_, [](const auto& entry) { return entry.first.expired(); });
  break_off_.emplace_back(call, [call = call.get()] {
    call->End(absl::CancelledError("broken off"), /*tells=*/false);
    call->Drop();
  });
  call->Send(std::move(first));
  node_.After(time_max, [weak = std::weak_ptr<Call>(call)] {
    const std::shared_ptr<Call> late = weak.lock();
    if (late != nullptr) late->End(absl::DeadlineExceededError("the call's time is over"), true);
  });
  return std::make_unique<OwnersEnd>(call);
}

}  // namespace crossmesh

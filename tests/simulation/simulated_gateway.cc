#include "tests/simulation/simulated_gateway.h"

#include "tests/simulation/simulated_call.h"
#include "tests/simulation/simulated_worker.h"
#include "worker/pipeline/served_program.h"
#include "worker/tasks/execute_call.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>

namespace crossmesh {
namespace {

uint64_t EpochOf(const v1::ExecuteRequest& request) {
  return request.has_adopt() ? request.adopt().by_epoch() : request.start().epoch();
}
uint64_t EpochOf(const v1::RunProgramRequest& request) { return request.start().epoch(); }

// A worker may have a task's part already; a program it gets at once.
bool AsksForBody(const v1::ExecuteResponse& response) { return response.has_need_part(); }
bool AsksForBody(const v1::RunProgramResponse& /*response*/) { return false; }
bool SendsBodyAtOnce(const v1::ExecuteRequest& /*request*/) { return false; }
bool SendsBodyAtOnce(const v1::RunProgramRequest& /*request*/) { return true; }

}  // namespace

template <typename Request, typename Response>
class SimulatedGateway<Request, Response>::Call final : public SimulatedCallClient<Response>,
                                                        public std::enable_shared_from_this<Call> {
 public:
  Call(WorkerCallStart<Request> start, WorkerCallListener<Response> listener)
      : epoch_(EpochOf(start.start)),
        body_(std::move(start.body)),
        listener_(std::move(listener)) {}

  void Open(SimulatedNode& node, SimulatedNetwork& network, SimulatedWorker& worker) {
    worker_ = &worker;
    stream_ = network.Open(
        node, worker.node(),
        [self = this->shared_from_this(), &worker](const std::shared_ptr<SimulatedStream>& stream) {
          self->at_worker_ = worker.Accept(stream, self);
        });
    stream_->Hear(0, [self = this->shared_from_this()](const absl::Status& status) {
      self->TellEnd(status);
    });
  }
  void Send(Request request) {
    stream_->Send(0, "gets an order of a controller",
                  [self = this->shared_from_this(), request = std::move(request)] {
                    const std::shared_ptr<Served> call = self->at_worker_.lock();
                    if (call == nullptr) return;
                    self->worker_->OnRequest(self->stream_, call, request, self->epoch_);
                  });
  }
  void SendBody() {
    const std::string bytes = body_();
    for (const bool is_last : {false, true}) {
      Request request;
      request.mutable_piece()->set_data(is_last ? bytes.substr(bytes.size() / 2)
                                                : bytes.substr(0, bytes.size() / 2));
      request.mutable_piece()->set_last(is_last);
      Send(std::move(request));
    }
  }
  void OnResponse(const Response& response) override {
    if (AsksForBody(response)) return SendBody();
    if (listener_.on_message != nullptr) listener_.on_message(response);
  }
  void End(const absl::Status& status, bool tells) {
    if (!stream_->is_open(0)) return;
    stream_->End(0, status);
    tells ? TellEnd(status) : Drop();
  }
  // What hears of it may own the call.
  void Drop() { const auto dropped = std::exchange(listener_, {}); }

 private:
  using Served =
      std::conditional_t<std::is_same_v<Request, v1::ExecuteRequest>, ExecuteCall, ServedProgram>;

  void TellEnd(const absl::Status& status) {
    const auto listener = std::exchange(listener_, {});
    if (listener.on_end != nullptr) listener.on_end(status);
  }

  const uint64_t epoch_;
  const std::function<std::string()> body_;
  WorkerCallListener<Response> listener_;  // none once it has ended
  SimulatedWorker* worker_ = nullptr;
  std::shared_ptr<SimulatedStream> stream_;
  std::weak_ptr<Served> at_worker_;  // only used in its process
};

template <typename Request, typename Response>
class SimulatedGateway<Request, Response>::OwnersEnd final : public WorkerCall<Request> {
 public:
  explicit OwnersEnd(std::shared_ptr<Call> call) : call_(std::move(call)) {}
  ~OwnersEnd() override { call_->End(absl::CancelledError("broken off"), /*tells=*/false); }
  void Send(Request request) override { call_->Send(std::move(request)); }
  void SendLast(Request request) override { call_->Send(std::move(request)); }
  void Cancel() override { call_->End(absl::CancelledError("cancelled"), /*tells=*/true); }

 private:
  const std::shared_ptr<Call> call_;
};

template <typename Request, typename Response>
void SimulatedGateway<Request, Response>::Stop() {
  for (const auto& [call, break_off] : std::exchange(break_off_, {})) {
    const std::shared_ptr<void> open = call.lock();
    if (open != nullptr) break_off();
  }
}

template <typename Request, typename Response>
std::unique_ptr<WorkerCall<Request>> SimulatedGateway<Request, Response>::Open(
    WorkerCallStart<Request> start, WorkerCallListener<Response> listener) {
  const auto worker = std::ranges::find_if(workers_, [&](const SimulatedWorker* candidate) {
    return candidate->address() == start.address;
  });
  Request first = start.start;
  if (on_open_) on_open_(first);
  const absl::Duration time_max = start.time_max;
  const bool sends_body = SendsBodyAtOnce(first);
  const auto call = std::make_shared<Call>(std::move(start), std::move(listener));
  call->Open(node_, network_, **worker);
  std::erase_if(break_off_, [](const auto& entry) { return entry.first.expired(); });
  break_off_.emplace_back(call, [call = call.get()] {
    call->End(absl::CancelledError("broken off"), /*tells=*/false);
    call->Drop();
  });
  call->Send(std::move(first));
  if (sends_body) call->SendBody();
  if (time_max < absl::InfiniteDuration()) {
    node_.After(time_max, [weak = std::weak_ptr<Call>(call)] {
      const auto late = weak.lock();
      if (late != nullptr) late->End(absl::DeadlineExceededError("the call's time is over"), true);
    });
  }
  return std::make_unique<OwnersEnd>(call);
}

template class SimulatedGateway<v1::ExecuteRequest, v1::ExecuteResponse>;
template class SimulatedGateway<v1::RunProgramRequest, v1::RunProgramResponse>;

}  // namespace crossmesh

#pragma once

#include "common/base/check.h"
#include "common/plan/worker_part.h"
#include "common/wire/worker_part_codec.h"
#include "controller/dispatch/worker_gateway.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>

namespace crossmesh {

// A call, as the worker at its other end sees it, for which a test speaks. Confined to the test's
// thread.
template <typename RequestType, typename ResponseType>
struct FakeCall {
  using Request = RequestType;
  using Response = ResponseType;

  FakeCall(const WorkerCallStart<Request>& opened, WorkerCallListener<Response> heard_by)
      : address(opened.address),
        start(opened.start.start()),
        body(opened.body == nullptr ? "" : opened.body()),
        listener(std::move(heard_by)) {}

  std::string address;
  typename Request::Start start;
  std::string body;
  WorkerCallListener<Response> listener;
  std::vector<std::string> heard;
  bool dropped = false;  // by its owner

  void Accept() const {
    Response response;
    response.mutable_accepted();
    listener.on_message(std::move(response));
  }
  // The last word of a call; said for all that are open when the gateway goes.
  void End(const absl::Status& status) {
    const auto told = std::exchange(listener.on_end, nullptr);
    listener.on_message = nullptr;
    if (told != nullptr) told(status);
  }
};

// Of a task. Hears "cancel WHY", "commit 1,2", "abandon 1", "lost W", "ack".
struct FakeTaskCall : FakeCall<v1::ExecuteRequest, v1::ExecuteResponse> {
  FakeTaskCall(const WorkerCallStart<Request>& opened, WorkerCallListener<Response> heard_by)
      : FakeCall(opened, std::move(heard_by)), adopt(opened.start.adopt()) {}

  v1::ExecuteRequest::Adopt adopt;     // in place of the start
  std::vector<DeviceRank> adopted_to;  // then: devices that receive

  void Hear(const v1::ExecuteRequest& request) {
    const std::string devices = absl::StrJoin(request.resolve().devices(), ",");
    heard.push_back(request.has_cancel() ? absl::StrCat("cancel ", request.cancel().reason())
                    : request.has_resolve()
                        ? absl::StrCat(request.resolve().commit() ? "commit " : "abandon ", devices)
                    : request.has_peer_lost() ? absl::StrCat("lost ", request.peer_lost().worker())
                                              : "ack");
  }

  WorkerPart part() const {
    v1::WorkerPart message;
    CHECK(message.ParseFromString(body));
    absl::StatusOr<WorkerPart> part = FromProto(message);
    CHECK_OK(part);
    return *std::move(part);
  }
  std::vector<DeviceRank> Destinations() const {
    if (adopt.by_epoch() > 0) return adopted_to;
    const WorkerPart of_worker = part();
    std::vector<DeviceRank> devices;
    for (const DeviceRank device : of_worker.spec().devices) {
      if (of_worker.tensors().replica_of(device) >= 0) devices.push_back(device);
    }
    return devices;
  }
  // All destination devices of the task are done.
  void Finish(const absl::Status& status = absl::OkStatus()) const {
    for (const DeviceRank device : Destinations()) {
      v1::ExecuteResponse response;
      response.mutable_device_done()->set_device(device);
      response.mutable_device_done()->set_code(static_cast<int>(status.code()));
      response.mutable_device_done()->set_message(std::string(status.message()));
      listener.on_message(std::move(response));
    }
  }
  void Report(const absl::Status& status, const std::vector<std::string>& lost_peers = {},
              const std::vector<DeviceRank>& broken_devices = {}) const {
    v1::ExecuteResponse response;
    v1::TaskReport& report = *response.mutable_report();
    report.set_code(static_cast<int>(status.code()));
    report.set_message(std::string(status.message()));
    report.mutable_lost_peers()->Assign(lost_peers.begin(), lost_peers.end());
    report.mutable_broken_devices()->Assign(broken_devices.begin(), broken_devices.end());
    report.set_received_bytes(10);
    listener.on_message(std::move(response));
  }
  void Resolved(const absl::Status& status) const {
    v1::ExecuteResponse response;
    const std::vector<DeviceRank> devices = Destinations();
    response.mutable_resolved()->mutable_devices()->Assign(devices.begin(), devices.end());
    response.mutable_resolved()->set_code(static_cast<int>(status.code()));
    response.mutable_resolved()->set_message(std::string(status.message()));
    listener.on_message(std::move(response));
  }
};

// Of a program. Hears "begin 0", "stop WHY", "cancel".
struct FakeProgramCall : FakeCall<v1::RunProgramRequest, v1::RunProgramResponse> {
  FakeProgramCall(const WorkerCallStart<Request>& opened, WorkerCallListener<Response> heard_by)
      : FakeCall(opened, std::move(heard_by)) {
    CHECK(start.layers() ? layers.ParseFromString(body) : program.ParseFromString(body));
  }

  void Hear(const v1::RunProgramRequest& request) {
    heard.push_back(request.has_stop()
                        ? absl::StrCat("stop ", request.stop().reason())
                        : absl::StrCat("begin ", request.begin_iteration().iteration()));
  }
  void Report(v1::RunProgramResponse::IterationReport report) const {
    v1::RunProgramResponse response;
    *response.mutable_iteration_report() = std::move(report);
    listener.on_message(std::move(response));
  }

  v1::PipelineProgram program;  // empty where the start is of layers
  v1::LayerProgram layers;      // empty where it is not
};

// Workers that a test speaks for. Confined to the test's thread.
template <typename Call>
class FakeGateway final : public WorkerGateway<typename Call::Request, typename Call::Response> {
 public:
  using Request = typename Call::Request;
  using Response = typename Call::Response;

  ~FakeGateway() override {
    for (const std::shared_ptr<Call>& call : calls) call->End(absl::OkStatus());
  }

  std::unique_ptr<WorkerCall<Request>> Open(WorkerCallStart<Request> start,
                                            WorkerCallListener<Response> listener) override {
    calls.push_back(std::make_shared<Call>(std::move(start), std::move(listener)));
    return std::make_unique<OwnersEnd>(calls.back());
  }

  // The latest call to an address; null when there was none.
  Call* Latest(const std::string& address) const {
    for (auto call = calls.rbegin(); call != calls.rend(); ++call) {
      if ((*call)->address == address) return call->get();
    }
    return nullptr;
  }

  std::vector<std::shared_ptr<Call>> calls;

 private:
  class OwnersEnd final : public WorkerCall<Request> {
   public:
    explicit OwnersEnd(std::shared_ptr<Call> call) : call_(std::move(call)) {}
    ~OwnersEnd() override { call_->dropped = true; }
    void Send(Request request) override { call_->Hear(request); }
    void SendLast(Request request) override { call_->Hear(request); }
    void Cancel() override { call_->heard.push_back("cancel"); }

   private:
    const std::shared_ptr<Call> call_;
  };
};

}  // namespace crossmesh

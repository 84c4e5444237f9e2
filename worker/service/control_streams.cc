#include "worker/service/control_streams.h"

#include "common/event_loop/event_loop.h"
#include "common/rpc/server_streams.h"
#include "crossmesh/v1/execution_service.grpc.pb.h"
#include "crossmesh/v1/pipeline_execution_service.grpc.pb.h"
#include "worker/pipeline/program_host.h"
#include "worker/pipeline/served_program.h"
#include "worker/tasks/execute_call.h"
#include "worker/wire/caller.h"

#include <utility>

#include <absl/status/status.h>
#include <grpcpp/support/server_callback.h>

namespace crossmesh {
namespace {

// A controller's call, as gRPC sees it: brings its messages, in order, to the control loop, where
// `Protocol` (ExecuteCall, ServedProgram) knows what they mean. Protocol has OnRequest and OnGone.
// Thread-safe.
template <typename Request, typename Response, typename Protocol>
class ControlStream final : public ServerBidiStream<Request, Response>, public Caller<Response> {
 public:
  using Stream = ServerBidiStream<Request, Response>;

  explicit ControlStream(EventLoop& control) : control_(control) {}

  // `on` is what the protocol works on, and outlives the server.
  template <typename On>
  static typename Stream::Reactor* Open(EventLoop& control, On& on) {
    auto stream = std::make_shared<ControlStream>(control);
    // The call and the stream keep each other until the stream has ended.
    stream->call_ = std::make_shared<Protocol>(on, stream);
    return Stream::Serve(std::move(stream));
  }

  void Say(const Response& response) override { this->Send(response); }
  void End(const absl::Status& status) override { Stream::End(status); }

 private:
  void OnMessage(Request request) override {
    control_.Post([call = call_, request = std::move(request)] { call->OnRequest(request); });
  }
  // The protocol ends the call, so that the caller still hears what is said after its last word.
  void OnMessagesEnd() override {}
  void OnEnd() override {
    control_.Post([call = std::move(call_)] { call->OnGone(); });
  }

  EventLoop& control_;
  std::shared_ptr<Protocol> call_;
};

class ExecutionService final : public v1::ExecutionService::CallbackService {
 public:
  ExecutionService(EventLoop& control, TaskTable& table) : control_(control), table_(table) {}

  grpc::ServerBidiReactor<v1::ExecuteRequest, v1::ExecuteResponse>* Execute(
      grpc::CallbackServerContext* /*context*/) override {
    return ControlStream<v1::ExecuteRequest, v1::ExecuteResponse, ExecuteCall>::Open(control_,
                                                                                     table_);
  }

 private:
  EventLoop& control_;
  TaskTable& table_;
};

class PipelineExecutionService final : public v1::PipelineExecutionService::CallbackService {
 public:
  explicit PipelineExecutionService(ProgramHost& host) : host_(host) {}

  grpc::ServerBidiReactor<v1::RunProgramRequest, v1::RunProgramResponse>* RunProgram(
      grpc::CallbackServerContext* /*context*/) override {
    return ControlStream<v1::RunProgramRequest, v1::RunProgramResponse, ServedProgram>::Open(
        host_.control(), host_);
  }

 private:
  ProgramHost& host_;
};

}  // namespace

std::unique_ptr<grpc::Service> MakeExecutionService(EventLoop& control, TaskTable& table) {
  return std::make_unique<ExecutionService>(control, table);
}

std::unique_ptr<grpc::Service> MakePipelineExecutionService(ProgramHost& host) {
  return std::make_unique<PipelineExecutionService>(host);
}

}  // namespace crossmesh

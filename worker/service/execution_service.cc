#include "worker/service/execution_service.h"

#include "common/rpc/server_streams.h"
#include "worker/tasks/execute_call.h"
#include "worker/tasks/task_caller.h"

#include <memory>
#include <utility>

#include <absl/status/status.h>

namespace crossmesh {
namespace {

using ExecuteServerStream = ServerBidiStream<v1::ExecuteRequest, v1::ExecuteResponse>;

// One call, as gRPC sees it. It brings its messages to the control loop, where the protocol is.
class ExecuteStream final : public ExecuteServerStream, public TaskCaller {
 public:
  explicit ExecuteStream(EventLoop& control) : control_(control) {}

  static ExecuteStream::Reactor* Open(EventLoop& control, TaskTable& table) {
    auto stream = std::make_shared<ExecuteStream>(control);
    // The call and the stream keep each other until the stream has ended.
    stream->call_ = std::make_shared<ExecuteCall>(table, stream);
    return Serve(std::move(stream));
  }

  void Say(const v1::ExecuteResponse& response) override { Send(response); }
  void End(const absl::Status& status) override { ExecuteServerStream::End(status); }

 private:
  void OnMessage(v1::ExecuteRequest request) override {
    control_.Post([call = call_, request = std::move(request)] { call->OnRequest(request); });
  }
  // The caller ends the call by Acknowledge, so that it still hears what the task says.
  void OnMessagesEnd() override {}
  void OnEnd() override {
    control_.Post([call = std::move(call_)] { call->OnGone(); });
  }

  EventLoop& control_;
  std::shared_ptr<ExecuteCall> call_;
};

}  // namespace

grpc::ServerBidiReactor<v1::ExecuteRequest, v1::ExecuteResponse>* ExecutionService::Execute(
    grpc::CallbackServerContext* /*context*/) {
  return ExecuteStream::Open(control_, table_);
}

}  // namespace crossmesh

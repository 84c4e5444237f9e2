#include "worker/service/pipeline_execution_service.h"

#include "common/rpc/server_streams.h"
#include "worker/pipeline/served_program.h"

#include <memory>
#include <utility>

namespace crossmesh {
namespace {

using ProgramServerStream = ServerBidiStream<v1::RunProgramRequest, v1::RunProgramResponse>;

// One call, as gRPC sees it.
class ProgramStream final : public ProgramServerStream, public ProgramCaller {
 public:
  explicit ProgramStream(EventLoop& control) : control_(control) {}

  static ProgramStream::Reactor* Open(ProgramHost& host) {
    auto stream = std::make_shared<ProgramStream>(host.control());
    // The call and the stream keep each other until the stream has ended.
    stream->call_ = std::make_shared<ServedProgram>(host, stream);
    return Serve(std::move(stream));
  }

  void Say(const v1::RunProgramResponse& response) override { Send(response); }
  void End(const absl::Status& status) override { ProgramServerStream::End(status); }

 private:
  void OnMessage(v1::RunProgramRequest request) override {
    control_.Post([call = call_, request = std::move(request)] { call->OnRequest(request); });
  }
  // The call ends when the program does.
  void OnMessagesEnd() override {}
  void OnEnd() override {
    control_.Post([call = std::move(call_)] { call->OnGone(); });
  }

  EventLoop& control_;
  std::shared_ptr<ServedProgram> call_;
};

}  // namespace

grpc::ServerBidiReactor<v1::RunProgramRequest, v1::RunProgramResponse>*
PipelineExecutionService::RunProgram(grpc::CallbackServerContext* /*context*/) {
  return ProgramStream::Open(host_);
}

}  // namespace crossmesh

#pragma once

#include "common/rpc/server_streams.h"
#include "controller/service/pipeline_run_registry.h"

#include <memory>
#include <string>
#include <utility>

namespace crossmesh {

// A stream of a run, until it has ended. Response has a `run`.
template <typename Response>
class PipelineWatch final : public ServerWriteStream<Response>, public PipelineWatcher {
 public:
  using Stream = ServerWriteStream<Response>;

  PipelineWatch(PipelineRunRegistry& registry, std::string id)
      : registry_(registry), id_(std::move(id)) {}

  // A stream that follows run `id`.
  static typename Stream::Reactor* Follow(PipelineRunRegistry& registry, const std::string& id) {
    auto watch = std::make_shared<PipelineWatch>(registry, id);
    registry.Watch(id, watch);
    return Stream::Serve(std::move(watch));
  }
  // A stream that ends at once.
  static typename Stream::Reactor* Refuse(PipelineRunRegistry& registry,
                                          const absl::Status& status) {
    auto watch = std::make_shared<PipelineWatch>(registry, "");
    watch->End(status);
    return Stream::Serve(std::move(watch));
  }

  bool OnRun(const v1::PipelineRun& run) override {
    Response response;
    *response.mutable_run() = run;
    const bool taken = this->Send(std::move(response));
    if (run.has_end_time()) this->End(absl::OkStatus());
    return taken;
  }
  void OnNoRun(const absl::Status& status) override { this->End(status); }

 private:
  void OnEnd() override { registry_.Unwatch(id_, this); }

  PipelineRunRegistry& registry_;
  const std::string id_;
};

}  // namespace crossmesh

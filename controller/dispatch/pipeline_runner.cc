#include "controller/dispatch/pipeline_runner.h"

#include <memory>
#include <utility>

#include <absl/functional/any_invocable.h>

namespace crossmesh {

absl::Status PipelineRunner::Start(PipelineRequest request) {
  const std::string id = request.run.id();
  return table_.Start(
      id, [this, request = std::move(request)](absl::AnyInvocable<void()> on_finished) mutable {
        return std::make_shared<RunningPipeline>(environment_, std::move(request),
                                                 std::move(on_finished));
      });
}

void PipelineRunner::Stop(const std::string& id, bool now, const std::string& reason) {
  table_.With(id, [now, reason](RunningPipeline& run) { run.Stop(now, reason); });
}

void PipelineRunner::StopAll(const std::string& reason) {
  table_.WithAll([reason](RunningPipeline& run) { run.Stop(/*now=*/true, reason); });
}

void PipelineRunner::OnWorkerLost(const std::string& worker, const absl::Status& why) {
  table_.WithAll([worker, why](RunningPipeline& run) { run.WorkerIsLost(worker, why); });
}

}  // namespace crossmesh

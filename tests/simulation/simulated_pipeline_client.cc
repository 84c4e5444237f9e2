#include "tests/simulation/simulated_pipeline_client.h"

#include <utility>

#include <absl/status/status.h>
#include <absl/strings/str_cat.h>
#include <absl/time/time.h>

namespace crossmesh {

void SimulatedPipelineClient::Start() {
  ports_.node.After(world().Between(absl::Seconds(1), habits_.pause_max), [this] { Next(); });
}

std::shared_ptr<SimulatedStream> SimulatedPipelineClient::Open(const char* label, Call call) {
  SimulatedController& at = *ports_.controllers[controller_ % ports_.controllers.size()];
  const auto stream = ports_.network.Open(
      ports_.node, at.node(), [](const std::shared_ptr<SimulatedStream>& /*stream*/) {});
  stream->Send(0, label, [&at, stream, call = std::move(call)] {
    SimulatedPipelines* const pipelines = at.pipelines();
    if (pipelines == nullptr) return stream->End(1, absl::UnavailableError("it does not lead"));
    call(*pipelines, stream);
  });
  return stream;
}

void SimulatedPipelineClient::Next() {
  if (finishing_ || number_ == habits_.runs) return;
  run_ = absl::StrCat(ports_.node.name(), "-", ++number_);
  iterations_ = 1 + world().Pick(habits_.iterations_max);
  id_.clear();
  ended_ = false;
  ports_.history.OnRequest(run_);
  world().Log(ports_.node.name(), "asks for", run_);
  Ask();
  if (world().Happens(habits_.stops)) {
    ports_.node.After(world().Between(absl::ZeroDuration(), absl::Seconds(10)), [this, run = run_] {
      if (run == run_ && !ended_) Stop();
    });
  }
}

void SimulatedPipelineClient::Ask() {
  const auto stream =
      Open("is asked to run a pipeline",
           [this, run = run_, iterations = iterations_](
               SimulatedPipelines& at, const std::shared_ptr<SimulatedStream>& at_controller) {
             at.Run(at_controller, run, iterations,
                    [this, run](const v1::PipelineRun& told) { OnRun(run, told); });
           });
  stream->Hear(0, [this, run = run_](const absl::Status& /*status*/) {
    if (ended_ || run_ != run) return;
    ports_.node.After(world().Between(absl::Milliseconds(100), absl::Seconds(1)), [this, run] {
      if (ended_ || run_ != run) return;
      ++controller_;
      Ask();
    });
  });
}

void SimulatedPipelineClient::LookAgain() {
  for (size_t i = 0; i < ports_.controllers.size(); ++i, ++controller_) Ask();
}

void SimulatedPipelineClient::OnRun(const std::string& run, const v1::PipelineRun& told) {
  ports_.history.OnTold(run, told);
  if (ended_ || run != run_) return;
  id_ = told.id();
  if (!told.has_end_time()) return;
  world().Log(told.id(), "has ended", v1::PipelineRunState_Name(told.state()));
  ended_ = true;
  ports_.node.After(world().Between(absl::ZeroDuration(), habits_.pause_max), [this] { Next(); });
}

void SimulatedPipelineClient::Stop() {
  if (id_.empty()) return;
  world().Log(ports_.node.name(), "stops", id_);
  Open("is asked to stop a run",
       [id = id_, now = world().Happens(0.5)](
           SimulatedPipelines& at, const std::shared_ptr<SimulatedStream>& at_controller) {
         at.StopRun(at_controller, id, now);
       });
}

}  // namespace crossmesh

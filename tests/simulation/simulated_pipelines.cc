#include "tests/simulation/simulated_pipelines.h"

#include "common/base/digest.h"
#include "common/base/status_macros.h"
#include "controller/dispatch/pipeline_resumption.h"
#include "controller/dispatch/runnable_plan.h"
#include "controller/dispatch/testing/sample_pipeline.h"
#include "controller/membership/worker_registry.h"

#include <utility>

#include <absl/strings/str_cat.h>
#include <absl/time/time.h>

namespace crossmesh {
namespace {

constexpr double kForwardSeconds = 0.15;
constexpr double kGradientSeconds = 0.1;
constexpr int64_t kBatchColumns = 8;
constexpr absl::Duration kIterationDeadline = absl::Seconds(20);
constexpr absl::Duration kRunStallLimit = absl::Seconds(2);
// Calls that do not end are given up after RunningPipeline::kEndingGrace.
constexpr absl::Duration kFailureLimit = absl::Seconds(8);
constexpr int64_t kRunsAtOnce = 2;  // the client's, and one that it does not wait for

std::string Token() { return std::string(16, 'p'); }

v1::PipelineSpec PipelineOf(const std::string& run) {
  v1::PipelineSpec spec = SamplePipeline({4, 4});
  for (v1::PipelineStage& stage : *spec.mutable_stages()) {
    stage.set_forward_seconds(kForwardSeconds);
    stage.set_input_gradient_seconds(kGradientSeconds);
    stage.set_weight_gradient_seconds(kGradientSeconds);
  }
  auto& tensor = *spec.mutable_edges(0)->mutable_tensors(0)->mutable_tensor();
  tensor.set_name(run);
  tensor.set_shape(1, kBatchColumns);
  return spec;
}

int64_t LastTried(const v1::PipelineRun& run) {
  return run.done().empty() ? -1 : run.done().rbegin()->index();
}

PipelineRequest RequestOf(v1::PipelineRun shown) {
  PipelineRequest request;
  request.iteration_deadline = kIterationDeadline;
  request.stall_limit = kRunStallLimit;
  request.resumption = shown.request_id();
  request.client = shown.request_id();
  request.plan = [run = shown.request_id()](CancelCheck) -> PipelineRequest::Planned {
    ASSIGN_OR_RETURN(auto planned, PlanSample(PipelineOf(run)));
    return MakeRunnable(std::move(planned));
  };
  request.shown = std::move(shown);
  return request;
}

}  // namespace

SimulatedPipelines::SimulatedPipelines(const Ports& ports)
    : ports_(ports),
      records_(ports.store, ports.epoch, ports.node.clock(),
               {.noun = "pipeline", .id_prefix = "pr-"}),
      gateway_(ports.node, ports.network, ports.workers),
      registry_({.records = records_,
                 .numbers = ports.numbers,
                 .queue = ports.queue,
                 .clock = ports.node.clock()}),
      running_({.gateway = gateway_,
                .workers = ports.registry,
                .queue = ports.queue,
                .planners = ports.planners,
                .clock = ports.node.clock(),
                .sink = registry_,
                .numbers = ports.numbers,
                .epoch = ports.epoch,
                .new_token = &Token}) {}

// As PipelineService::TakeUp.
absl::Status SimulatedPipelines::TakeUp() {
  ASSIGN_OR_RETURN(const std::vector<JobRecords::Unfinished> left, registry_.Load());
  for (const JobRecords::Unfinished& job : left) {
    RETURN_IF_ERROR(registry_.Resume(
        job,
        [&](JobRegistry<v1::PipelineRun>::Entry entry,
            const std::string& /*resumption*/) -> absl::Status {
          ports_.node.world().Log(ports_.node.name(), "takes up", entry.job.id());
          PipelineRequest request = RequestOf(std::move(entry.job));
          ASSIGN_OR_RETURN(request.left, ParseProgress(request.shown.id(), job.progress));
          return running_.Start(std::move(request));
        }));
  }
  return absl::OkStatus();
}

void SimulatedPipelines::WorkerIsLost(const std::string& worker, const absl::Status& why) {
  running_.WithAll([worker, why](RunningPipeline& run) { run.WorkerIsLost(worker, why); });
  for (const auto& run : registry_.List("", kRunsAtOnce)) ExpectFailure(run, worker);
}

void SimulatedPipelines::ExpectFailure(const std::shared_ptr<const v1::PipelineRun>& run,
                                       const std::string& worker) {
  if (run->state() != v1::PIPELINE_RUN_STATE_RUNNING) return;
  const auto since = ports_.node.world().now();
  ports_.queue.PostAfter(kFailureLimit, [this, run, worker, since] {
    const auto now = registry_.Get(run->id());
    if (!now.ok() || (*now)->state() != v1::PIPELINE_RUN_STATE_RUNNING) return;
    if (LastTried(**now) > LastTried(*run) || !ports_.can_record(since)) return;
    ports_.history.Violated(absl::StrCat("run ", run->id(), " still runs the iteration after ",
                                         LastTried(*run), ", ", absl::FormatDuration(kFailureLimit),
                                         " after worker ", worker, " was lost"));
  });
}

void SimulatedPipelines::Stop(const absl::Status& why) {
  for (const auto& [number, stream] : std::exchange(calls_, {})) stream->End(1, why);
  gateway_.Stop();
}

// As PipelineService::Begin.
absl::StatusOr<std::string> SimulatedPipelines::Begin(const std::string& run, int64_t iterations) {
  v1::PipelineRun first;
  first.set_request_id(run);
  first.set_state(v1::PIPELINE_RUN_STATE_PREPARING);
  first.set_iterations(iterations);
  return registry_.Begin(std::move(first), Digest::Of(run),
                         [&](JobRegistry<v1::PipelineRun>::Entry entry) {
                           return running_.Start(RequestOf(std::move(entry.job)));
                         });
}

void SimulatedPipelines::Run(const std::shared_ptr<SimulatedStream>& stream, const std::string& run,
                             int64_t iterations, OnRun on_run) {
  const absl::StatusOr<std::string> id = Begin(run, iterations);
  if (!id.ok()) return stream->End(1, id.status());
  calls_[stream->number()] = stream;
  stream->Hear(1,
               [this, stream](const absl::Status& /*status*/) { calls_.erase(stream->number()); });
  registry_.Watch(*id, [this, stream, on_run](
                           const absl::StatusOr<std::shared_ptr<const v1::PipelineRun>>& latest) {
    if (!latest.ok()) {
      calls_.erase(stream->number());
      stream->End(1, latest.status());
      return false;
    }
    stream->Send(1, "hears of its run", [on_run, told = *latest] { on_run(*told); });
    if (!(*latest)->has_end_time()) return stream->is_open(1);
    calls_.erase(stream->number());
    stream->End(1, absl::OkStatus());
    return false;
  });
}

// As PipelineService::StopPipelineRun.
void SimulatedPipelines::StopRun(const std::shared_ptr<SimulatedStream>& stream,
                                 const std::string& id, bool now) {
  running_.With(id, [now](RunningPipeline& run) { run.Stop(now, "a client asked for it"); });
  stream->End(1, absl::OkStatus());
}

}  // namespace crossmesh

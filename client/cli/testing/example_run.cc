#include "client/cli/testing/example_run.h"

#include "planner/pipeline/planning/testing/example_pipeline.h"
#include "planner/pipeline/planning/testing/planned_pipelines.h"

namespace crossmesh {
namespace {

void Add(const std::string& name, const TimeSpan& planned, double slower,
         v1::PipelineTimes& times) {
  times.add_name(name);
  times.add_begin(slower * planned.begin);
  times.add_end(slower * planned.end);
}

v1::PipelineMeasurement MeasurementOf(const PlannedPipeline& planned, double slower) {
  v1::PipelineMeasurement measurement;
  const OpTable& ops = *planned.ops;
  for (RankIndex rank = 0; rank < planned.profile.ranks(); ++rank) {
    v1::PipelineMeasurement::Rank& measured = *measurement.add_ranks();
    measured.set_rank(rank);
    for (OpIndex step = ops.first(rank); step < ops.first(rank + 1); step = ops.EndOf(step)) {
      Add(ops.NameOfStep(step), planned.run.ops[step], slower, *measured.mutable_ops());
    }
  }
  for (const PlannedTransfer& transfer : planned.transfers) {
    v1::PipelineMeasurement::Transfer& measured = *measurement.add_transfers();
    measured.set_edge(transfer.index / 2);
    measured.set_backward(!OpTable::IsForward(transfer.index));
    measured.set_samples(transfer.samples);
    measured.set_transfer_seconds(slower * transfer.seconds);
    measured.set_first_byte_seconds(0.0004);
    for (MicrobatchIndex m = 0; m < ops.schedule().microbatches; ++m) {
      if (planned.description.samples[m] != transfer.samples) continue;
      Add(ToString(Unfused(ops.op(ops.ProducerOf(transfer.index, m)))),
          planned.run.messages[ops.MessageOf(transfer.index, m)], slower,
          *measured.mutable_messages());
    }
  }
  return measurement;
}

}  // namespace

v1::PipelineRun ExampleRun(const PlannedPipeline& planned, double slower) {
  v1::PipelineRun run;
  run.set_id("pr-0123456789abcdef");
  run.set_request_id("night-7");
  run.set_state(v1::PIPELINE_RUN_STATE_DONE);
  run.set_pipeline(planned.description.name);
  *run.mutable_plan() = planned.Summary();
  run.set_rehearsal(true);
  run.set_iterations(3);
  run.set_failed_iterations(1);
  run.set_median_seconds(slower * planned.run.seconds);
  for (int64_t i = 0; i < 3; ++i) {
    v1::PipelineIteration& iteration = *run.add_done();
    iteration.set_index(i);
    if (i == 0) {
      iteration.set_error(
          "worker node-a: microbatch 6 of 1>0 at device node-a.0: worker node-b is lost: stalled, "
          "it took nothing of channel node-a.0 -> node-b.0 for 5s; "
          "rank 0: 0B5 waits for microbatch 5 of 1>0; rank 3: done");
      iteration.set_error_code(14);
    } else {
      iteration.set_seconds(slower * planned.run.seconds);
    }
  }
  *run.mutable_measurement() = MeasurementOf(planned, slower);
  run.mutable_create_time()->set_seconds(1'795'444'800);
  run.mutable_end_time()->set_seconds(1'795'444'810);
  return run;
}

v1::PipelineRun ExampleRunOf(const std::string& schedule, double slower) {
  return ExampleRun(**PlanOf(ExamplePipeline(), ChoiceOf(schedule)), slower);
}

}  // namespace crossmesh

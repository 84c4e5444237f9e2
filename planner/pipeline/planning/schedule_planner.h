#pragma once

#include "common/base/cancel_check.h"
#include "planner/pipeline/planning/edge_plans.h"
#include "planner/pipeline/planning/pipeline_choice.h"
#include "planner/pipeline/planning/pipeline_description.h"
#include "planner/pipeline/planning/planned_pipeline.h"
#include "planner/pipeline/profile.h"

#include <memory>
#include <vector>

#include <absl/status/statusor.h>

namespace crossmesh {

// Plans schedules for one pipeline, whose edges are planned once. Immutable.
class SchedulePlanner {
 public:
  // As PlanEdges, and InvalidArgument as Validate(PipelineProfile).
  static absl::StatusOr<SchedulePlanner> Create(PipelineDescription pipeline,
                                                CancelCheck cancelled);

  // With as much memory for messages as the schedule needs by its predicted run, or as is left. As
  // PlanPipeline, edges aside.
  absl::StatusOr<std::shared_ptr<const PlannedPipeline>> Plan(const PipelineChoice& choice,
                                                              CancelCheck cancelled) const;

  // What no schedule of the pipeline can do better in what the search minimises, whatever the form
  // of its backward ops: ResourceExhausted as ComputePipelineBound.
  absl::StatusOr<PipelineBound> BoundOfAll(const SearchOptions& search) const;

  // Times and sizes of a microbatch of the largest size; transfers have room for one message.
  const PipelineProfile& profile() const { return profile_; }

 private:
  SchedulePlanner(PipelineDescription pipeline, std::vector<EdgePlan> plans);
  void AddStages();
  void AddEdges();
  void AddPorts();
  // For so many messages of each plan, at most one for each microbatch.
  PipelineProfile ProfileWithBuffers(int32_t buffers) const;
  absl::Status MakeSchedule(const PipelineChoice& choice, CancelCheck cancelled,
                            PlannedPipeline& planned) const;
  absl::Status Search(const PipelineChoice& choice, CancelCheck cancelled,
                      PlannedPipeline& planned) const;
  // Of what the search minimises; infinite where the schedule does not fit or cannot run.
  double SecondsOf(const Schedule& schedule, const SearchOptions& search) const;
  absl::StatusOr<Schedule> ReadSchedule(const PipelineChoice& choice) const;
  absl::Status WithLeastMemory(const absl::Status& status) const;
  absl::Status AddTransfers(PlannedPipeline& planned) const;

  int32_t microbatches() const { return static_cast<int32_t>(pipeline_.samples.size()); }

  PipelineDescription pipeline_;
  std::vector<EdgePlan> plans_;
  std::vector<int32_t> counts_;  // of microbatches, by plan
  PipelineProfile profile_;
  std::vector<PipelineProfile> rooms_;  // with room for more messages, and for one
};

}  // namespace crossmesh

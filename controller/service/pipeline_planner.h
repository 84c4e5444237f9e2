#pragma once

#include "common/base/cancel_check.h"
#include "crossmesh/v1/pipeline_service.pb.h"

#include <cstdint>
#include <memory>

#include <absl/functional/any_invocable.h>
#include <absl/status/status.h>
#include <absl/status/statusor.h>

namespace crossmesh {

class Clock;
class RunnablePlan;
struct Catalog;

// Where specifications of pipelines, and of layer programs, become plans: looks up what they name,
// and plans. Thread-safe.
class PipelinePlanner {
 public:
  PipelinePlanner(Catalog& catalog, const Clock& clock) : catalog_(catalog), clock_(clock) {}

  // Whether it can be planned now. NotFound names the rank and its mesh; InvalidArgument names the
  // field.
  absl::Status Check(const v1::PipelineSpec& spec) const;

  struct Planning {
    int64_t cost = 0;  // as PlanningCost counts
    // What a planner's thread does, once: what PlanPipeline or PlanLayers finds.
    absl::AnyInvocable<absl::StatusOr<std::shared_ptr<const RunnablePlan>>(CancelCheck)> plan;
  };
  // Of a request with a source and a choice: with the meshes that are registered under the names of
  // ranks, and the current network where the specification has none. As Check; NotFound names the
  // pipeline; InvalidArgument: there is no source, or a choice for a layer program.
  absl::StatusOr<Planning> Open(const v1::PlanPipelineRequest& request) const;
  absl::StatusOr<Planning> Open(const v1::StartPipelineRequest& request) const;

  // The same run, with all that it names now in place of the names: what is registered later, or no
  // more, does not change it. As Open.
  absl::StatusOr<v1::StartPipelineRequest> Resolve(v1::StartPipelineRequest request) const;

  // Plans, and tells what came of it and how long it took.
  absl::StatusOr<v1::PipelinePlan> Plan(Planning& planning, CancelCheck cancelled) const;

 private:
  Catalog& catalog_;
  const Clock& clock_;
};

}  // namespace crossmesh

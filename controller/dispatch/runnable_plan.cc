#include "controller/dispatch/runnable_plan.h"

#include "common/base/status_macros.h"
#include "controller/dispatch/iteration_measurement.h"
#include "controller/dispatch/layer_programs.h"
#include "controller/dispatch/worker_programs.h"
#include "planner/layers/planned_layers.h"
#include "planner/pipeline/planning/planned_pipeline.h"

#include <utility>

namespace crossmesh {
namespace {

using Meshes = std::vector<std::shared_ptr<const Mesh>>;
using Programs = std::vector<RunnablePlan::Program>;

template <typename Ranks>
Meshes MeshesOf(const Ranks& ranks) {
  Meshes meshes;
  for (const auto& rank : ranks) meshes.push_back(rank.mesh);
  return meshes;
}

template <typename Made>
absl::StatusOr<Programs> Serialize(absl::StatusOr<std::vector<Made>> made) {
  RETURN_IF_ERROR(made.status());
  Programs programs;
  for (Made& program : *made) {
    programs.push_back({program.message.SerializeAsString(), std::move(program.transfers)});
  }
  return programs;
}

class RunnablePipeline final : public RunnablePlan {
 public:
  explicit RunnablePipeline(std::shared_ptr<const PlannedPipeline> planned)
      : planned_(std::move(planned)) {}

  std::string name() const override { return planned_->description.name; }
  double seconds() const override { return planned_->run.seconds; }
  Meshes meshes() const override { return MeshesOf(planned_->description.ranks); }
  bool has_layers() const override { return false; }
  v1::PipelinePlan Summary() const override { return planned_->Summary(); }
  absl::StatusOr<Programs> MakePrograms(
      const std::vector<std::vector<DeviceId>>& devices_of_worker) const override {
    return Serialize(MakeWorkerPrograms(*planned_, devices_of_worker));
  }
  v1::PipelineMeasurement Measure(const std::vector<WorkerReport>& reports) const override {
    return MeasureIteration(*planned_, reports);
  }

 private:
  const std::shared_ptr<const PlannedPipeline> planned_;
};

class RunnableLayers final : public RunnablePlan {
 public:
  explicit RunnableLayers(std::shared_ptr<const PlannedLayers> planned)
      : planned_(std::move(planned)) {}

  std::string name() const override { return planned_->program.name; }
  double seconds() const override { return planned_->run.seconds; }
  Meshes meshes() const override { return MeshesOf(planned_->program.ranks); }
  bool has_layers() const override { return true; }
  v1::PipelinePlan Summary() const override { return planned_->Summary(); }
  absl::StatusOr<Programs> MakePrograms(
      const std::vector<std::vector<DeviceId>>& devices_of_worker) const override {
    return Serialize(MakeLayerPrograms(*planned_, devices_of_worker));
  }
  v1::PipelineMeasurement Measure(const std::vector<WorkerReport>& reports) const override {
    return MeasureIteration(*planned_, reports);
  }

 private:
  const std::shared_ptr<const PlannedLayers> planned_;
};

}  // namespace

std::shared_ptr<const RunnablePlan> MakeRunnable(std::shared_ptr<const PlannedPipeline> planned) {
  return std::make_shared<RunnablePipeline>(std::move(planned));
}

std::shared_ptr<const RunnablePlan> MakeRunnable(std::shared_ptr<const PlannedLayers> planned) {
  return std::make_shared<RunnableLayers>(std::move(planned));
}

}  // namespace crossmesh

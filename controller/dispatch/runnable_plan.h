#pragma once

#include "common/mesh/device.h"
#include "common/mesh/mesh.h"
#include "controller/dispatch/iteration_times.h"
#include "crossmesh/v1/pipeline.pb.h"
#include "crossmesh/v1/pipeline_service.pb.h"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <absl/status/statusor.h>

namespace crossmesh {

struct PlannedLayers;
struct PlannedPipeline;

// What a run needs of a plan, whether that is of a pipeline or of a layer program. Immutable;
// thread-safe.
class RunnablePlan {
 public:
  struct Program {
    std::string bytes;               // serialized, as workers get it
    std::vector<int32_t> transfers;  // as WorkerReport's
  };

  virtual ~RunnablePlan() = default;

  virtual std::string name() const = 0;
  // Predicted, of an iteration.
  virtual double seconds() const = 0;
  // By rank.
  virtual std::vector<std::shared_ptr<const Mesh>> meshes() const = 0;
  // Whether programs are v1.LayerProgram, not v1.PipelineProgram.
  virtual bool has_layers() const = 0;
  // Everything but the time that planning took.
  virtual v1::PipelinePlan Summary() const = 0;
  // As MakeWorkerPrograms and MakeLayerPrograms.
  virtual absl::StatusOr<std::vector<Program>> MakePrograms(
      const std::vector<std::vector<DeviceId>>& devices_of_worker) const = 0;
  // As MeasureIteration.
  virtual v1::PipelineMeasurement Measure(const std::vector<WorkerReport>& reports) const = 0;
};

std::shared_ptr<const RunnablePlan> MakeRunnable(std::shared_ptr<const PlannedPipeline> planned);
std::shared_ptr<const RunnablePlan> MakeRunnable(std::shared_ptr<const PlannedLayers> planned);

}  // namespace crossmesh

#include "planner/parallelism/step_model.h"

#include "common/base/status_macros.h"
#include "planner/parallelism/collective_walk.h"

#include <algorithm>
#include <utility>

namespace crossmesh {
namespace {

// Gradient and state are read, state and weight are written.
constexpr double kOptimizerTrafficBytes = 30;

// What attention's core costs again in the backward pass.
double RecomputeSeconds(const Training& training, const BlockWork& work) {
  switch (training.recompute) {
    case Recompute::kNone:
      return 0;
    case Recompute::kSelective:
      return work.attention;
    case Recompute::kFull:
      return work.forward();
  }
  return 0;
}

}  // namespace

double StepPrice::exposed() const {
  double sum = 0;
  for (const double seconds : exposed_seconds.values) sum += seconds;
  return sum;
}

double StepPrice::communication_seconds() const {
  double sum = exposed();
  for (const double seconds : hidden_seconds.values) sum += seconds;
  return sum;
}

StepModel::StepModel(Transformer model, Training training, DeviceProfile device,
                     PositionRates rates)
    : model_(std::move(model)),
      training_(training),
      device_(std::move(device)),
      rates_(std::move(rates)) {}

absl::StatusOr<StepModel> StepModel::Create(Transformer model, Training training,
                                            DeviceProfile device, PositionRates rates) {
  RETURN_IF_ERROR(Validate(model));
  RETURN_IF_ERROR(Validate(training));
  RETURN_IF_ERROR(Validate(device));
  return StepModel(std::move(model), training, std::move(device), std::move(rates));
}

struct StepModel::UseSums {
  struct Pass {
    double exposed = 0;  // of one microbatch
    double hidden = 0;
  };
  Pass forward;
  Pass backward;
  double first_gather = 0;  // that other gathers hide behind the layer before, and nothing its own
  CollectiveUse transfer;
};

StepModel::UseSums StepModel::SumUses(const GridShape& shape, const BlockWork& work,
                                      StepPrice& price) const {
  UseSums sums;
  const auto add = [&](const CollectiveUse& use, double times, UseSums::Pass& pass) {
    const double hidden = use.hidden_seconds * use.count;
    const double exposed = use.seconds * use.count - hidden;
    price.exposed_seconds[use.axis] += exposed;
    price.hidden_seconds[use.axis] += hidden;
    price.wire_bytes[use.axis] +=
        use.count * WireBytes(use.op, shape.grid[use.axis], use.message_bytes);
    pass.exposed += exposed / times;
    pass.hidden += hidden / times;
  };
  const auto microbatches = static_cast<double>(shape.microbatches);
  CollectiveWalk walk(*this, shape, work);
  walk.Forward([&](const CollectiveUse& use) {
    if (use.axis == GridAxis::kZ && sums.first_gather == 0) sums.first_gather = use.hidden_seconds;
    add(use, microbatches, sums.forward);
  });
  walk.Backward([&](const CollectiveUse& use) { add(use, microbatches, sums.backward); });
  UseSums::Pass end;
  walk.StepEnd([&](const CollectiveUse& use) { add(use, 1, end); });
  price.exposed_seconds[GridAxis::kZ] += sums.first_gather;
  price.hidden_seconds[GridAxis::kZ] -= sums.first_gather;
  if (shape.grid.pipeline() > 1) sums.transfer = walk.Transfer();
  return sums;
}

EqualPipeline StepModel::PipelineOf(const GridShape& shape, const BlockWork& work,
                                    const UseSums& sums) const {
  const auto layers = static_cast<double>(shape.layers);
  const double slower = device_.overlap_slowdown - 1;
  const double again = RecomputeSeconds(training_, work);
  EqualPipeline pipeline{.schedule = training_.schedule,
                         .ranks = shape.grid.pipeline(),
                         .microbatches = shape.microbatches,
                         .chunks = training_.chunks,
                         .transfer_seconds = sums.transfer.seconds};
  pipeline.forward_seconds =
      layers * work.forward() + sums.forward.exposed + slower * sums.forward.hidden;
  pipeline.weight_gradient_seconds = layers * work.products();
  pipeline.input_gradient_seconds = layers * (2 * work.forward() + again) + sums.backward.exposed +
                                    slower * sums.backward.hidden -
                                    pipeline.weight_gradient_seconds;
  return pipeline;
}

EqualPipeline StepModel::PipelineOf(const GridShape& shape) const {
  const BlockWork work = WorkOfBlock(model_, training_, device_, shape);
  StepPrice price;
  return PipelineOf(shape, work, SumUses(shape, work, price));
}

StepPrice StepModel::Price(const GridShape& shape) const {
  StepPrice price;
  const BlockWork work = WorkOfBlock(model_, training_, device_, shape);
  const UseSums sums = SumUses(shape, work, price);
  const auto microbatches = static_cast<double>(shape.microbatches);
  price.compute_seconds = microbatches * static_cast<double>(shape.layers) *
                          (3 * work.forward() + RecomputeSeconds(training_, work));
  price.slowdown_seconds =
      (device_.overlap_slowdown - 1) *
      (microbatches * (sums.forward.hidden + sums.backward.hidden) - sums.first_gather);
  price.logits_seconds = microbatches * 3 * LogitsSeconds(model_, device_, shape);
  price.optimizer_seconds = OptimizedParameters(model_, training_, shape) * kOptimizerTrafficBytes /
                            device_.memory_bytes_per_second;
  if (shape.grid.pipeline() == 1) return price;

  EqualPipeline pipeline = PipelineOf(shape, work, sums);
  const double all = PipelineSeconds(pipeline);
  pipeline.transfer_seconds = 0;
  const double without_transfers = PipelineSeconds(pipeline);
  price.bubble_seconds = without_transfers - microbatches * pipeline.seconds();
  const CollectiveUse& transfer = sums.transfer;
  price.exposed_seconds[GridAxis::kPipeline] = all - without_transfers;
  price.hidden_seconds[GridAxis::kPipeline] =
      std::max(0.0, transfer.count * transfer.seconds - (all - without_transfers));
  price.wire_bytes[GridAxis::kPipeline] = transfer.count * transfer.message_bytes;
  return price;
}

std::vector<CollectiveUse> StepModel::Collectives(const GridShape& shape) const {
  std::vector<CollectiveUse> uses;
  const BlockWork work = WorkOfBlock(model_, training_, device_, shape);
  CollectiveWalk walk(*this, shape, work);
  const auto keep = [&uses](const CollectiveUse& use) { uses.push_back(use); };
  walk.Forward(keep);
  walk.Backward(keep);
  walk.StepEnd(keep);
  if (shape.grid.pipeline() > 1) uses.push_back(walk.Transfer());
  return uses;
}

}  // namespace crossmesh

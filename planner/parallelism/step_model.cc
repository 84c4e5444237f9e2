#include "planner/parallelism/step_model.h"

#include "common/base/status_macros.h"
#include "planner/parallelism/collective_walk.h"

#include <algorithm>
#include <utility>

namespace crossmesh {
namespace {

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

CollectiveShare ShareOf(const CollectiveUse& use, const Grid& grid) {
  const double hidden = use.hidden_seconds * use.count;
  return {.axis = use.axis,
          .exposed_seconds = use.seconds * use.count - hidden,
          .hidden_seconds = hidden,
          .wire_bytes = use.count * WireBytes(use.op, grid[use.axis], use.message_bytes)};
}

void Add(const CollectiveShare& share, StepPrice& price) {
  price.exposed_seconds[share.axis] += share.exposed_seconds;
  price.hidden_seconds[share.axis] += share.hidden_seconds;
  price.wire_bytes[share.axis] += share.wire_bytes;
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
      blocks_(MatricesOf(model_)),
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
  CollectiveUse transfer;
};

// Of all microbatches.
StepModel::UseSums StepModel::SumUses(const GridShape& shape, const BlockWork& work,
                                      StepPrice& price) const {
  UseSums sums;
  const auto microbatches = static_cast<double>(shape.microbatches);
  const auto add = [&](const CollectiveUse& use, UseSums::Pass& pass) {
    const CollectiveShare share = ShareOf(use, shape.grid);
    Add(share, price);
    pass.exposed += share.exposed_seconds / microbatches;
    pass.hidden += share.hidden_seconds / microbatches;
  };
  CollectiveWalk walk(*this, shape, work);
  walk.Forward([&](const CollectiveUse& use) { add(use, sums.forward); });
  walk.Backward([&](const CollectiveUse& use) { add(use, sums.backward); });
  if (shape.grid.pipeline() > 1) sums.transfer = walk.Transfer();
  return sums;
}

SharesOfStep StepModel::OnceInAStep(const GridShape& shape) const {
  SharesOfStep shares;
  // Nothing is computed beside them.
  const BlockWork none;
  const CollectiveWalk walk(*this, shape, none);
  const auto keep = [&](const CollectiveUse& use) { shares.push_back(ShareOf(use, shape.grid)); };
  walk.StepBegin(keep);
  walk.StepEnd(keep);
  return shares;
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
  pipeline.weight_gradient_seconds = layers * work.weight_gradients();
  pipeline.input_gradient_seconds = layers * (work.backward() + again) + sums.backward.exposed +
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
  return PriceOf(shape, WorkOfBlock(model_, training_, device_, shape),
                 LogitsProducts(model_, device_, shape), OnceInAStep(shape));
}

StepPrice StepModel::Price(const GridShape& shape, ProductPrices& products,
                           const SharesOfStep& once) const {
  return PriceOf(shape, WorkOfBlock(model_, training_, products, shape),
                 LogitsProducts(model_, products, shape), once);
}

StepPrice StepModel::PriceOf(const GridShape& shape, const BlockWork& work,
                             const LayerProducts& logits, const SharesOfStep& once) const {
  StepPrice price;
  const UseSums sums = SumUses(shape, work, price);
  for (const CollectiveShare& share : once) Add(share, price);
  // Of the last stage alone, as its products are.
  double hidden_by_logits = 0;
  CollectiveWalk(*this, shape, work).Logits(logits, [&](const CollectiveUse& use) {
    const CollectiveShare share = ShareOf(use, shape.grid);
    Add(share, price);
    hidden_by_logits += share.hidden_seconds;
  });
  const auto microbatches = static_cast<double>(shape.microbatches);
  price.compute_seconds = microbatches * static_cast<double>(shape.layers) *
                          (work.forward() + work.backward() + RecomputeSeconds(training_, work));
  price.slowdown_seconds =
      (device_.overlap_slowdown - 1) *
      (microbatches * (sums.forward.hidden + sums.backward.hidden) + hidden_by_logits);
  price.logits_seconds = microbatches * (logits.forward + logits.backward());
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
  walk.StepBegin(keep);
  walk.Forward(keep);
  walk.Logits(LogitsProducts(model_, device_, shape), keep);
  walk.Backward(keep);
  walk.StepEnd(keep);
  if (shape.grid.pipeline() > 1) uses.push_back(walk.Transfer());
  return uses;
}

}  // namespace crossmesh

#pragma once

#include "planner/parallelism/axis_rates.h"
#include "planner/parallelism/block_work.h"
#include "planner/parallelism/device_profile.h"
#include "planner/parallelism/grid_shape.h"
#include "planner/parallelism/memory_model.h"
#include "planner/parallelism/pipeline_law.h"
#include "planner/parallelism/product_prices.h"

#include <array>
#include <cstdint>
#include <vector>

#include <absl/container/inlined_vector.h>
#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>

namespace crossmesh {

// A predicted step. The parts add up to `seconds`.
struct StepPrice {
  double compute_seconds = 0;   // of blocks, for all microbatches
  double slowdown_seconds = 0;  // that they take longer beside collectives
  double logits_seconds = 0;
  double optimizer_seconds = 0;
  double bubble_seconds = 0;        // in which ranks of a pipeline wait for others' work
  PerAxis<double> exposed_seconds;  // of collectives that nothing hides
  PerAxis<double> hidden_seconds;
  PerAxis<double> wire_bytes;  // that a device sends

  double communication_seconds() const;  // exposed and hidden
  double exposed() const;
  double seconds() const {
    return compute_seconds + slowdown_seconds + logits_seconds + optimizer_seconds +
           bubble_seconds + exposed();
  }
};

// A collective of a step, and what becomes of its time.
struct CollectiveUse {
  absl::string_view pass;  // "step begin", "forward", "recompute", "backward", "step end"
  absl::string_view
      object;  // "qkv", "attention", "experts", "block", "logits", "stage", "gradients", "vectors"
  absl::string_view what;  // "weights", "output", ...
  CollectiveOp op = CollectiveOp::kAllReduce;
  GridAxis axis = GridAxis::kC;
  double message_bytes = 0;
  double count = 0;             // of them in a step
  double seconds = 0;           // of one
  double hidden_seconds = 0;    // of one
  absl::string_view hidden_by;  // what hides it: empty where nothing does
};

// What a collective adds to a price, all of them together.
struct CollectiveShare {
  GridAxis axis = GridAxis::kC;
  double exposed_seconds = 0;
  double hidden_seconds = 0;
  double wire_bytes = 0;
};
// Of those that are there once in a step, whatever the microbatch.
using SharesOfStep = absl::InlinedVector<CollectiveShare, 26>;

// Our cost model: collectives at the rates of their positions, products by size, what overlaps
// hide, schedules by their closed forms, memory by its terms. docs/grids.md has the formulas.
// Immutable; its functions allocate nothing but for Collectives.
class StepModel {
 public:
  // Of a parameter: gradient and state are read, state and weight are written.
  static constexpr double kOptimizerTrafficBytes = 30;

  // InvalidArgument as the Validate functions.
  static absl::StatusOr<StepModel> Create(Transformer model, Training training,
                                          DeviceProfile device, PositionRates rates);

  const Transformer& model() const { return model_; }
  const Training& training() const { return training_; }
  const std::array<BlockMatrix, kBlockMatrices>& blocks() const { return blocks_; }
  const DeviceProfile& device() const { return device_; }
  const PositionRates& rates() const { return rates_; }

  // Of shapes whose grid CheckGrid accepts, on as many devices as there are rates of.
  StepPrice Price(const GridShape& shape) const;
  // The same, with what other shapes of this model and other microbatches of the grid have as well.
  SharesOfStep OnceInAStep(const GridShape& shape) const;
  StepPrice Price(const GridShape& shape, ProductPrices& products, const SharesOfStep& once) const;
  MemoryTerms Memory(const GridShape& shape) const { return MemoryOf(model_, training_, shape); }
  // Its pipeline, with what collectives expose in the ops; of one rank, too.
  EqualPipeline PipelineOf(const GridShape& shape) const;
  // What Price adds up, in the order of a step.
  std::vector<CollectiveUse> Collectives(const GridShape& shape) const;
  // What an axis of a grid has.
  const AxisRate& RateOf(const Grid& grid, GridAxis axis) const {
    return rates_.At(InnerSizes(grid, training_.order)[axis], grid[axis]);
  }

 private:
  // The sums over a step's collectives, a microbatch's forward and backward apart.
  struct UseSums;

  UseSums SumUses(const GridShape& shape, const BlockWork& work, StepPrice& price) const;
  StepPrice PriceOf(const GridShape& shape, const BlockWork& work, const LayerProducts& logits,
                    const SharesOfStep& once) const;
  EqualPipeline PipelineOf(const GridShape& shape, const BlockWork& work,
                           const UseSums& sums) const;

  StepModel(Transformer model, Training training, DeviceProfile device, PositionRates rates);

  Transformer model_;
  std::array<BlockMatrix, kBlockMatrices> blocks_;  // of the model
  Training training_;
  DeviceProfile device_;
  PositionRates rates_;
};

}  // namespace crossmesh

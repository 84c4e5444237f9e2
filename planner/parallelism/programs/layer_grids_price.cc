#include "planner/parallelism/programs/layer_grids_price.h"

#include "common/base/count_text.h"
#include "common/base/error_place.h"
#include "common/base/status_macros.h"
#include "planner/parallelism/grid_rules.h"
#include "planner/parallelism/programs/grid_mesh.h"
#include "planner/parallelism/programs/part_prices.h"

#include <algorithm>
#include <optional>
#include <utility>

#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

template <typename... Parts>
absl::Status Refused(const LayerGrids& grids, const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat("grid ", ToString(grids), ": ", parts...));
}

absl::Status CheckTraining(const StepModel& step, const LayerGrids& grids) {
  const Training& training = step.training();
  if (training.order != kGridOrder) {
    return Refused(grids, "expected axes in the order ", ToString(kGridOrder), ", found ",
                   ToString(training.order));
  }
  if (training.zero != 0 || training.recompute != Recompute::kNone ||
      training.vectors != VectorForm::kReplicated) {
    return Refused(grids, "expected no ZeRO, nothing computed again, and copied vectors, found ",
                   "stage ", training.zero, ", ", RecomputeName(training.recompute), " and ",
                   VectorFormName(training.vectors), " ones");
  }
  if (grids.grid.devices() != step.rates().devices()) {
    return Refused(grids, "expected ", step.rates().devices(), " devices, found ",
                   grids.grid.devices());
  }
  return absl::OkStatus();
}

// Of as many microbatches on every grid.
absl::StatusOr<LayerGridsPrice> PriceWith(const StepModel& step, const LayerGrids& grids,
                                          const PartsOnGrids& parts, int64_t microbatches) {
  LayerGridsPrice price{.grids = grids, .parts = parts};
  for (const Grid& grid : parts.grids) {
    Training training = step.training();
    const int64_t all = grid.sample_groups() * microbatches;
    if (training.batch % all != 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("grid ", ToString(grid), ": expected a batch in ",
                       CountText(microbatches, "microbatch", "microbatches"), " of ",
                       CountText(grid.sample_groups(), "group", "groups"), ", found ",
                       CountText(training.batch, "sequence", "sequences")));
    }
    training.microbatch = training.batch / all;
    RETURN_IF_ERROR(
        At(absl::StrCat("grid ", ToString(grid)), CheckGrid(step.model(), training, grid)));
    price.shapes.push_back(ShapeOf(step.model(), training, grid, training.microbatch));
  }
  RETURN_IF_ERROR(PriceParts(step, price));
  return price;
}

}  // namespace

double LayerGridsPrice::joint_seconds() const {
  double seconds = 0;
  for (const JointPrice& joint : joints) seconds += joint.seconds();
  return seconds;
}

absl::StatusOr<LayerGridsPrice> PriceLayerGrids(const StepModel& step, const LayerGrids& grids,
                                                bool over_memory) {
  RETURN_IF_ERROR(CheckTraining(step, grids));
  ASSIGN_OR_RETURN(const PartsOnGrids parts, PartsOf(grids, {.layers = step.model().layers}));
  RETURN_IF_ERROR(AxesOfGrids(parts.grids).status());
  const Training& training = step.training();
  const int64_t of_group = training.batch / grids.grid.sample_groups();
  std::optional<LayerGridsPrice> best, least;
  absl::Status refused;
  for (int64_t microbatch = 1; microbatch <= of_group; ++microbatch) {
    const bool is_wanted = training.microbatch == 0 || microbatch == training.microbatch;
    if (!is_wanted || of_group % microbatch != 0) continue;
    absl::StatusOr<LayerGridsPrice> priced = PriceWith(step, grids, parts, of_group / microbatch);
    refused.Update(priced.status());
    if (!priced.ok()) continue;
    const bool fits = priced->memory_bytes() <= static_cast<double>(step.device().memory_bytes);
    if (!least || priced->memory_bytes() < least->memory_bytes()) least = *priced;
    if (fits && (!best || priced->seconds() < best->seconds())) best = *std::move(priced);
  }
  if (best.has_value()) return *std::move(best);
  if (!least.has_value()) {
    return refused.ok() ? Refused(grids, "expected a batch that its groups cut, found ",
                                  CountText(training.batch, "sequence", "sequences"))
                        : refused;
  }
  if (over_memory) return *std::move(least);
  return absl::ResourceExhaustedError(
      absl::StrCat("grid ", ToString(grids), ": expected at most ", step.device().memory_bytes,
                   " bytes of a device, found that it needs at least ",
                   static_cast<int64_t>(least->memory_bytes())));
}

}  // namespace crossmesh

// Of the logits' matrix. collective_walk.cc has all else.

#include "planner/parallelism/collective_walk.h"

#include <algorithm>

namespace crossmesh {

// As of a normal layer, whose microbatches have one each.
void CollectiveWalk::Logits(const LayerProducts& product, Sink sink) const {
  const Transformer& model = step_.model();
  const Grid& grid = shape_.grid;
  if (model.vocabulary == 0) return;
  const double k = static_cast<double>(model.hidden) / static_cast<double>(grid.c());
  const double n = static_cast<double>(model.vocabulary) / static_cast<double>(grid.r());
  const Overlaps& overlaps = training_.overlaps;
  const bool scattered = training_.activations == ActivationForm::kScattered;
  const CollectiveOp sum = scattered ? CollectiveOp::kReduceScatter : CollectiveOp::kAllReduce;
  const auto tell = [&](const CollectiveUse& what, double elements, const Hiding& hiding) {
    CollectiveUse use = what;
    use.object = "logits";
    use.message_bytes = elements * training_.element_bytes;
    use.count = static_cast<double>(shape_.microbatches);
    Tell(use, hiding, sink);
  };
  const auto gathers = [&](absl::string_view pass, absl::string_view what, GridAxis axis) {
    return CollectiveUse{.pass = pass, .what = what, .op = CollectiveOp::kAllGather, .axis = axis};
  };
  tell(gathers("forward", "weights", GridAxis::kZ), k * n,
       {overlaps.weight_gathers ? FreeForward(kBlockMatrices - 1) : 0, "the layer before"});
  if (scattered) tell(gathers("forward", "input", GridAxis::kR), shape_.rows * k, {});
  tell({.pass = "forward", .what = "output", .op = sum, .axis = GridAxis::kC}, shape_.rows * n,
       {overlaps.split_batch ? product.forward / 2 : 0, "the other half of the batch"});
  if (training_.cached_layers == 0) {
    tell(gathers("backward", "weights", GridAxis::kZ), k * n, {});
  }
  if (scattered) {
    tell(gathers("backward", "output gradient", GridAxis::kC), shape_.rows * n, {});
    if (!training_.keep_gathered) {
      tell(gathers("backward", "input", GridAxis::kR), shape_.rows * k,
           {overlaps.input_gradients ? product.input_gradient : 0,
            "the product of the input gradient"});
    }
  }
  tell({.pass = "backward", .what = "input gradient", .op = sum, .axis = GridAxis::kR},
       shape_.rows * k,
       {overlaps.input_gradients ? product.weight_gradient : 0,
        "the product of the weight gradient"});
  tell({.pass = "backward",
        .what = "weight gradient",
        .op = CollectiveOp::kReduceScatter,
        .axis = GridAxis::kZ},
       k * n, {overlaps.weight_gradients ? work_.backward() : 0, "the backward of earlier layers"});
}

}  // namespace crossmesh

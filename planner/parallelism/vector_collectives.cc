// Of vectors: norms, biases, embeddings. collective_walk.cc has all else.

#include "planner/parallelism/collective_walk.h"

namespace crossmesh {

PerAxis<double> CollectiveWalk::VectorElements() const {
  const Transformer& model = step_.model();
  const BlockVectors of_block = VectorsOf(model);
  const auto layers = static_cast<double>(shape_.layers);
  PerAxis<double> elements;
  // The last stage has the norm before logits as well.
  elements[GridAxis::kC] = layers * static_cast<double>(of_block.of_c) +
                           (model.vocabulary > 0 ? 2 * static_cast<double>(model.hidden) : 0);
  elements[GridAxis::kR] = layers * static_cast<double>(of_block.of_r);
  return elements;
}

// From the diagonal along the axis that does not cut them, and gathered over z.
void CollectiveWalk::StepBegin(Sink sink) const {
  if (training_.vectors == VectorForm::kReplicated) return;
  const PerAxis<double> elements = VectorElements();
  for (const GridAxis axis : {GridAxis::kC, GridAxis::kR}) {
    const double message =
        elements[axis] / static_cast<double>(shape_.grid[axis]) * training_.element_bytes;
    CollectiveUse use{.pass = "step begin",
                      .object = "vectors",
                      .what = "parameters",
                      .op = CollectiveOp::kSend,
                      .axis = axis == GridAxis::kC ? GridAxis::kR : GridAxis::kC,
                      .message_bytes = message / static_cast<double>(shape_.grid.z()),
                      .count = 1};
    Tell(use, {}, sink);
    use.op = CollectiveOp::kAllGather;
    use.axis = GridAxis::kZ;
    use.message_bytes = message;
    Tell(use, {}, sink);
  }
}

void CollectiveWalk::SumVectors(GridAxis axis, double elements, Sink sink) const {
  double message =
      elements / static_cast<double>(shape_.grid[axis]) * training_.data_gradient_bytes;
  for (const GridAxis over : {GridAxis::kC, GridAxis::kR, GridAxis::kZ, GridAxis::kContext,
                              GridAxis::kExpert, GridAxis::kData}) {
    const bool is_face = over == GridAxis::kC || over == GridAxis::kR;
    // Copies of activations give the same gradients.
    if (is_face && (over == axis || training_.activations == ActivationForm::kReplicated)) continue;
    Tell({.pass = "step end",
          .object = "vectors",
          .what = "gradients",
          .op = CollectiveOp::kAllReduce,
          .axis = over,
          .message_bytes = message,
          .count = 1},
         {}, sink);
    message /= static_cast<double>(shape_.grid[over]);
  }
}

void CollectiveWalk::VectorGradients(Sink sink) const {
  const bool is_diagonal = training_.vectors == VectorForm::kDiagonal;
  if (step_.model().vocabulary > 0) {
    const PerAxis<double> elements = VectorElements();
    const double embeddings =
        static_cast<double>((step_.model().vocabulary + training_.sequence) * step_.model().hidden);
    SumVectors(GridAxis::kC, embeddings + (is_diagonal ? 0 : elements[GridAxis::kC]), sink);
    if (!is_diagonal) SumVectors(GridAxis::kR, elements[GridAxis::kR], sink);
  }
  if (is_diagonal) DiagonalGradients(sink);
}

// Scattered over z; then the diagonal takes what each of the others has.
void CollectiveWalk::DiagonalGradients(Sink sink) const {
  const PerAxis<double> elements = VectorElements();
  for (const GridAxis axis : {GridAxis::kC, GridAxis::kR}) {
    const double message =
        elements[axis] / static_cast<double>(shape_.grid[axis]) * training_.data_gradient_bytes;
    CollectiveUse use{.pass = "step end",
                      .object = "vectors",
                      .what = "gradients",
                      .op = CollectiveOp::kReduceScatter,
                      .axis = GridAxis::kZ,
                      .message_bytes = message,
                      .count = 1};
    Tell(use, {}, sink);
    use.op = CollectiveOp::kSend;
    use.axis = axis == GridAxis::kC ? GridAxis::kR : GridAxis::kC;
    use.message_bytes = message / static_cast<double>(shape_.grid.z());
    use.count = static_cast<double>(shape_.grid[use.axis] - 1);
    Tell(use, {}, sink);
  }
}

}  // namespace crossmesh

#pragma once

#include "planner/parallelism/step_model.h"

#include <array>

#include <absl/functional/function_ref.h>

namespace crossmesh {

// Goes through the collectives of a step, with what hides each of them, in their order. Part of
// StepModel, which lists or sums what it is told. Immutable.
class CollectiveWalk {
 public:
  using Sink = absl::FunctionRef<void(const CollectiveUse& use)>;

  CollectiveWalk(const StepModel& step, const GridShape& shape, const BlockWork& work);

  // What comes before the first pass: vectors from the diagonal.
  void StepBegin(Sink sink) const;
  // Of all blocks and microbatches.
  void Forward(Sink sink) const;
  // Of the logits' matrix, there and back; nothing without a vocabulary.
  void Logits(const LayerProducts& product, Sink sink) const;
  void Backward(Sink sink) const;
  // Gradients, or ZeRO's parts of them; those of vectors, where there is a vocabulary or they are
  // on the diagonal.
  void StepEnd(Sink sink) const;
  // Gradients of vectors that one axis of c and r cuts, elements of all devices, over all that have
  // copies: axis after axis, each of what the one before has left of it.
  void SumVectors(GridAxis axis, double elements, Sink sink) const;
  // Of what a layer computes, the time beside which nothing else runs.
  double FreeForward(int matrix) const;
  // One message between stages; nothing without a pipeline.
  CollectiveUse Transfer() const;

 private:
  struct Hiding {
    double seconds = 0;  // of what may run beside it
    absl::string_view by;
  };
  using PerMatrix = std::array<double, kBlockMatrices>;

  // Tells the sink of one, with what becomes of its time, unless its group is one device or nothing
  // is to move. In place: there are so many that copies would count.
  void Tell(CollectiveUse& use, const Hiding& hiding, Sink sink) const;
  void Tell(CollectiveUse&& use, const Hiding& hiding, Sink sink) const { Tell(use, hiding, sink); }
  CollectiveUse WeightGather(int matrix) const;
  double GatherSeconds(int matrix) const;
  // Of each matrix's gather one ahead in a forward pass, what hides in the mean of all layers; and
  // of a block that is computed again, which gathers ahead inside of itself alone.
  PerMatrix HiddenGathers(bool again) const;
  void ForwardMatrix(int matrix, absl::string_view pass, double hidden_gather, Sink sink) const;
  void BackwardMatrix(int matrix, Sink sink) const;
  void GatherInput(int matrix, absl::string_view pass, const Hiding& hiding, Sink sink) const;
  void Attention(absl::string_view pass, Sink sink) const;
  void Experts(absl::string_view pass, Sink sink) const;
  void Scatters(double window_seconds, Sink sink) const;
  void ZeroGathers(absl::string_view pass, Sink sink) const;
  void SumOverCopies(absl::string_view object, double elements, bool over_experts, Sink sink) const;
  void VectorGradients(Sink sink) const;
  void DiagonalGradients(Sink sink) const;
  // Elements of a vector that c or r cuts, of a device's layers, on all devices.
  PerAxis<double> VectorElements() const;
  bool HasRing() const;
  double FreeBackward(int matrix) const;
  double Blocks() const;         // of a step, on a device
  double UncachedShare() const;  // of layers whose gathered weights don't stay

  const StepModel& step_;
  const Training& training_;
  const GridShape& shape_;
  const BlockWork& work_;
  const std::array<MatrixShape, kBlockMatrices>& matrices_;
  const std::array<BlockMatrix, kBlockMatrices>& blocks_;
  PerAxis<const AxisRate*> rates_;
};

}  // namespace crossmesh

#pragma once

#include "examples/tensor_parallel_training/device_role.h"

#include <cstddef>
#include <string>
#include <vector>

#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>

namespace crossmesh::grid_training {

// Of a stage's grid, what that axis cuts.
struct VectorGroup {
  GridAxis axis = GridAxis::kC;
  size_t grid = 0;
};

// The parameters that one device stores, their gradients as they add up in a step, and what is
// gathered of matrices. Thread-compatible.
class DeviceParameters {
 public:
  // Cut from the whole model's state.
  DeviceParameters(const DeviceRole& role, const Tensors& whole);

  // What is stored, of parameters and of their moments: blocks, and parts of matrices.
  const Matrix& stored(absl::string_view name) const { return stored_.find(name)->second; }
  const Tensors& all_stored() const { return stored_; }
  // Of parameters, of the last step, summed over all devices.
  const Tensors& last_gradients() const { return last_gradients_; }

  // The device's block of a matrix, in use. FailedPrecondition when z cuts it and it is not
  // gathered.
  absl::StatusOr<Matrix> Block(const MatrixUse& use) const;
  // [1, elements], until it is dropped or the step ends.
  void KeepGathered(const MatrixUse& use, Matrix elements);
  void DropGathered(const MatrixUse& use) { gathered_.erase(use.key); }
  int64_t BlockElements(const MatrixUse& use) const;

  // A vector as it is used: the device's features of it. Those of the diagonal must be spread.
  const Matrix& Vector(absl::string_view name) const;
  // What the device stores of vectors of the diagonal that `axis` of c and r cuts, one after the
  // other: [1, elements]; and how many it uses.
  Matrix DiagonalVectors(GridAxis axis) const;
  int64_t DiagonalElements(GridAxis axis) const;
  // All of them for this device, [1, DiagonalElements]: of each place of z its parts, one after the
  // other. They stay until the step ends.
  void SpreadVectors(GridAxis axis, const Matrix& all);
  // Their gradients in the same order; and the sums of what this device stores.
  Matrix DiagonalGradients(GridAxis axis) const;
  void SetDiagonalGradients(GridAxis axis, const Matrix& sum);

  // Of the elements that are stored, or of all that the device uses of a vector.
  void AddGradient(absl::string_view name, const Matrix& gradient);
  const Matrix& gradient(absl::string_view name) const { return gradients_.find(name)->second; }
  // Of all but matrices, and vectors of the diagonal, that only one axis of a grid cuts, c or r,
  // one after the other: [1, elements].
  Matrix VectorGradients(const VectorGroup& of) const;
  // As many as those.
  void SetVectorGradients(const VectorGroup& of, const Matrix& sum);

  // What a matrix is to follow when the step is complete, and all others, which come last.
  void SetMatrixGradient(const MatrixUse& use, const Matrix& gradient);
  void SetVectorsDone();
  // All parameters follow their gradients.
  void ApplyStep();
  // What there is of a step that was cut short is forgotten.
  void DropStep();

  // Steps that are done, whatever grids they were done on.
  int64_t steps() const { return steps_; }
  // As all_stored; drops the step.
  void SetState(Tensors stored, int64_t steps);

 private:
  // Of each vector of the diagonal that the axis cuts.
  template <typename Visit>
  void VisitDiagonal(GridAxis axis, Visit visit) const;
  bool IsSummedAsItLies(const Parameter& parameter, const VectorGroup& of) const;
  // Beside others there is no diagonal.
  const Grid& diagonal_grid() const { return role_.grids.front().grid; }
  void SetGradient(const std::string& name, const Matrix& gradient);

  const DeviceRole role_;
  const std::vector<Parameter> parameters_;
  Tensors stored_;
  int64_t steps_ = 0;
  Tensors gradients_;
  Tensors last_gradients_;
  Tensors gathered_;  // by key of a matrix
  Tensors spread_;    // vectors of the diagonal
  Tensors reduced_;   // their gradients, of the elements that are stored
};

}  // namespace crossmesh::grid_training

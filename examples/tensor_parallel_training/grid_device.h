#pragma once

#include "examples/tensor_parallel_training/device_parameters.h"
#include "examples/tensor_parallel_training/device_pass.h"
#include "examples/tensor_parallel_training/device_role.h"
#include "examples/tensor_parallel_training/op_messages.h"
#include "planner/parallelism/programs/grid_op.h"

#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>

namespace crossmesh::grid_training {

// One device of a grid: its part of the parameters, and the arithmetic of every op of a grid's
// program (planner/parallelism/programs) on what it has. It does not know how messages move, nor
// which ones there are: an op uses what it is given, and otherwise what this device has left
// itself. Thread-compatible.
class GridDevice {
 public:
  GridDevice(DeviceRole role, const Tensors& whole);
  GridDevice(GridDevice&&) = delete;

  // The ops of a step in the order of the program. On an error the step cannot go on; it names the
  // op. InvalidArgument: an op that this stage does not have, a message that the op does not know
  // or of another size. FailedPrecondition: a message is missing.
  absl::Status Compute(const GridOp& op, std::span<const MessageTile> inputs,
                       std::span<const MessageTile> outputs);

  // The step is complete on all devices: parameters follow their gradients. Returns this device's
  // part of the loss, which is their sum: nothing where another device has the same tokens.
  double ApplyStep();
  // It was cut short, and is done again.
  void DropStep();

  // As DeviceParameters says.
  void SetState(Tensors stored, int64_t steps);

  const DeviceRole& role() const { return role_; }
  const DeviceParameters& parameters() const { return parameters_; }

 private:
  // What of an op its messages and its name do not say.
  struct Object {
    size_t place = 0;            // of its matrix, or of the one that comes next
    DevicePass* pass = nullptr;  // where it is of one
  };
  absl::StatusOr<Object> Find(const GridOp& op);
  std::string NameOf(const MatrixUse& use, absl::string_view what) const;
  absl::Status ComputeWith(const GridOp& op, const Object& object, OpMessages& messages);

  absl::Status Product(const GridOp& op, const Object& object, OpMessages& messages);
  absl::Status WeightGradient(const GridOp& op, size_t place, OpMessages& messages);
  absl::Status Take(const MatrixUse& use, OpMessages& messages);
  absl::Status GiveGradient(const MatrixUse& use, OpMessages& messages);
  absl::Status Update(const MatrixUse& use, OpMessages& messages);
  absl::Status ComputeVectors(GridOpKind kind, OpMessages& messages);
  absl::Status SpreadVectors(OpMessages& messages);
  absl::Status TakeVectors(OpMessages& messages);
  absl::Status ReduceVectors(OpMessages& messages);
  // The sums over the diagonal's line, of what was scattered.
  absl::Status UpdateDiagonal(GridAxis axis, OpMessages& messages);
  absl::Status GiveVectors(OpMessages& messages);
  absl::Status UpdateVectors(OpMessages& messages);
  // Its loss counts, or it has given the gradient of what came in: nothing of it is needed.
  absl::Status AddLoss(const DevicePass& pass);
  absl::Status EndPass(const GridOp& op);

  const DeviceRole role_;
  const std::vector<MatrixUse> uses_;
  const Samples samples_;
  DeviceParameters parameters_;
  std::map<PassId, std::unique_ptr<DevicePass>> passes_;
  PerAxis<Matrix> scattered_;  // gradients of vectors of the diagonal, on the way there
  double loss_ = 0;
};

}  // namespace crossmesh::grid_training

#pragma once

#include "examples/tensor_parallel_training/device_parameters.h"
#include "examples/tensor_parallel_training/device_role.h"
#include "examples/tensor_parallel_training/op_messages.h"

#include <optional>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>

namespace crossmesh::grid_training {

// One pass on one device: forward through the stage's matrices and back, op by op, on the device's
// rows and features. What a later op needs is kept here. An exchange has a name; where its group is
// one device there is no message of that name, and the op that needs it takes what the one before
// has left. Functions are those of GridOpKind, and fail as OpMessages does, or with
// FailedPrecondition when what they need is not there. Thread-compatible.
class DevicePass {
 public:
  // Of a matrix, what ops after its product need.
  struct Kept {
    Matrix input;            // of the product, all rows of data and z
    Matrix output_gradient;  // likewise
    Matrix before;           // what attention, or the activation function, was applied to
    Normed<float> norm;
    Matrix scaled_gradient;  // of norm.values
  };

  // What all passes of a device share.
  struct Shared {
    const DeviceRole& role;
    const std::vector<MatrixUse>& uses;
    const Samples& samples;
    DeviceParameters& parameters;
  };

  // All of `shared` must outlive it.
  DevicePass(const Shared& shared, PassId id);

  absl::Status Embed();
  // Of the matrix with that index, or before it.
  absl::Status Arrive(size_t place, OpMessages& messages);
  absl::Status Norm(size_t place, OpMessages& messages);
  absl::Status Input(size_t place, OpMessages& messages);
  absl::Status Forward(size_t place, OpMessages& messages);
  // Before it: after the last one, to the next stage.
  absl::Status Leave(size_t place, OpMessages& messages);
  absl::Status Loss(OpMessages& messages);
  absl::Status LossSum(OpMessages& messages);
  absl::Status Backward(OpMessages& messages);

  absl::Status ArriveBack(size_t place, OpMessages& messages);
  absl::Status OutputGradient(size_t place, OpMessages& messages);
  absl::Status InputGradient(size_t place, OpMessages& messages);
  absl::Status WaitGradient(size_t place, OpMessages& messages);
  absl::Status NormGradient(size_t place, OpMessages& messages);
  absl::Status EmbedGradient(OpMessages& messages);
  absl::Status LeaveBack(size_t place, OpMessages& messages);

  const Kept& kept(size_t place) const { return kept_[place]; }
  // Added up over the tokens that the device has after Backward.
  double loss() const { return loss_; }

 private:
  struct Exchange {
    std::string name;  // "qkv.sum"
    Eigen::Index rows = 0;
    Eigen::Index columns = 0;
  };
  // What comes in by a message, or was left by the op before.
  absl::StatusOr<Matrix> Receive(const Exchange& exchange, OpMessages& messages);
  // What goes out by a message, or is left for the op that needs it.
  absl::Status Hand(absl::string_view name, Matrix values, OpMessages& messages);

  Exchange Sum(const MatrixUse& use) const;
  Exchange GradientSum(const MatrixUse& use) const;
  const GridPlace& On(const MatrixUse& use) const { return role_.OnPart(use.part); }
  // "qkv.sum", with its grid where there are several.
  std::string NameOf(const MatrixUse& use, absl::string_view what) const;
  Eigen::Index RowCount(const GridPlace& on, std::optional<GridAxis> scattered_over) const;
  // The residual stream, or its gradient, as it lies around a matrix, moved from one to another; of
  // those of another stage there is none.
  Exchange Stream(absl::string_view what, const MatrixUse* from, const MatrixUse* to) const;
  const Matrix& Bias(const MatrixUse& use) const;
  // The residual stream takes what a transposed matrix gives.
  absl::Status AddOutput(const MatrixUse& use, OpMessages& messages);
  // The rest of a norm's gradient, which goes to the residual stream's.
  absl::Status FinishNorm(size_t place, OpMessages& messages);
  // Of the matrix's output on the device's own rows.
  absl::StatusOr<Matrix> OwnOutputGradient(size_t place, OpMessages& messages);
  Matrix LogitGradient(const Matrix& sums) const;
  AttentionSizes attention() const;

  const DeviceRole& role_;
  const std::vector<MatrixUse>& uses_;
  const Samples& samples_;
  DeviceParameters& parameters_;
  const PassId id_;

  Tensors left_;  // by name of an exchange
  std::vector<Kept> kept_;
  Matrix residual_;
  Matrix residual_gradient_;
  Matrix logits_;    // and then their gradient
  Matrix greatest_;  // of each row of logits, [rows, 1]
  double loss_ = 0;
};

}  // namespace crossmesh::grid_training

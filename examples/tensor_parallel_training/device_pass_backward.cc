#include "common/base/status_macros.h"
#include "examples/tensor_parallel_training/device_pass.h"

#include <utility>

#include <absl/strings/str_cat.h>

namespace crossmesh::grid_training {

DevicePass::Exchange DevicePass::GradientSum(const MatrixUse& use) const {
  return {.name = absl::StrCat(use.matrix.name, ".gradient_sum"),
          .rows = RowCount(use.columns),
          .columns = use.matrix.k / role_.grid[use.summed]};
}

absl::Status DevicePass::ArriveBack(OpMessages& messages) {
  ASSIGN_OR_RETURN(
      residual_gradient_,
      Receive({.name = "gradients", .rows = residual_.rows(), .columns = residual_.cols()},
              messages));
  return absl::OkStatus();
}

absl::Status DevicePass::FinishNorm(size_t place, OpMessages& messages) {
  const MatrixUse& use = uses_[place];
  const Kept& kept = kept_[place];
  ASSIGN_OR_RETURN(const Matrix sums,
                   Receive({.name = absl::StrCat(use.matrix.name, ".norm_gradient_sum"),
                            .rows = kept.scaled_gradient.rows(),
                            .columns = 2},
                           messages));
  Matrix gradient =
      grid_training::NormGradient(kept.scaled_gradient, kept.norm, sums, use.matrix.k);
  // Nothing goes past the norm of the logits.
  if (residual_gradient_.size() == 0) {
    residual_gradient_ = std::move(gradient);
  } else {
    residual_gradient_ += gradient;
  }
  return absl::OkStatus();
}

absl::StatusOr<Matrix> DevicePass::OwnOutputGradient(size_t place, OpMessages& messages) {
  const MatrixUse& use = uses_[place];
  if (use.matrix.name == "logits") return logits_;
  if (use.matrix.transposed) {
    if (place + 1 < uses_.size()) RETURN_IF_ERROR(FinishNorm(place + 1, messages));
    return residual_gradient_;
  }
  ASSIGN_OR_RETURN(const Matrix gradient, Receive(GradientSum(uses_[place + 1]), messages));
  const Matrix& before = kept_[place + 1].before;
  return use.matrix.name == "qkv" ? AttentionGradient(before, gradient, attention())
                                  : GeluGradient(before, gradient);
}

absl::Status DevicePass::OutputGradient(size_t place, OpMessages& messages) {
  const MatrixUse& use = uses_[place];
  ASSIGN_OR_RETURN(Matrix gradient, OwnOutputGradient(place, messages));
  if (use.matrix.name != "logits") {
    // Of the device's own rows, which are gathered below.
    parameters_.AddGradient(absl::StrCat(use.key, ".bias"), gradient.colwise().sum());
  }
  const std::string rows = absl::StrCat(use.matrix.name, ".gradient_rows");
  if (messages.Takes(rows)) return messages.Write(rows, gradient);
  kept_[place].output_gradient = std::move(gradient);
  return absl::OkStatus();
}

absl::Status DevicePass::InputGradient(size_t place, OpMessages& messages) {
  const MatrixUse& use = uses_[place];
  Kept& kept = kept_[place];
  const std::string rows = absl::StrCat(use.matrix.name, ".gradient_rows");
  if (messages.Brings(rows)) {
    ASSIGN_OR_RETURN(kept.output_gradient, messages.Read(rows, RowCount(std::nullopt),
                                                         use.matrix.n / role_.grid[use.columns]));
  }
  ASSIGN_OR_RETURN(const Matrix weights, parameters_.Block(use));
  return Hand(absl::StrCat(use.matrix.name, ".gradient_sum"),
              kept.output_gradient * weights.transpose(), messages);
}

absl::Status DevicePass::WaitGradient(size_t place, OpMessages& messages) {
  const Exchange exchange = GradientSum(uses_[place]);
  ASSIGN_OR_RETURN(left_[exchange.name], Receive(exchange, messages));
  return absl::OkStatus();
}

absl::Status DevicePass::NormGradient(size_t place, OpMessages& messages) {
  const MatrixUse& use = uses_[place];
  Kept& kept = kept_[place];
  ASSIGN_OR_RETURN(const Matrix gradient, Receive(GradientSum(use), messages));
  const std::string gain = absl::StrCat(use.key, ".norm_gain");
  parameters_.AddGradient(gain, gradient.cwiseProduct(kept.norm.values).colwise().sum());
  parameters_.AddGradient(absl::StrCat(use.key, ".norm_bias"), gradient.colwise().sum());
  kept.scaled_gradient = gradient.array().rowwise() * parameters_.Vector(gain).row(0).array();
  return Hand(absl::StrCat(use.matrix.name, ".norm_gradient_sum"),
              NormGradientSums(kept.scaled_gradient, kept.norm), messages);
}

absl::Status DevicePass::EmbedGradient(OpMessages& messages) {
  RETURN_IF_ERROR(FinishNorm(0, messages));
  const Interval rows = RowsOf(role_, id_, GridAxis::kR);
  Matrix tokens = Matrix::Zero(role_.settings.model.vocabulary, residual_gradient_.cols());
  Matrix positions = Matrix::Zero(role_.settings.sequence, residual_gradient_.cols());
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    tokens.row(samples_.tokens[row]) += residual_gradient_.row(row - rows.begin);
    positions.row(row % role_.settings.sequence) += residual_gradient_.row(row - rows.begin);
  }
  parameters_.AddGradient("tokens", tokens);
  parameters_.AddGradient("positions", positions);
  return absl::OkStatus();
}

absl::Status DevicePass::LeaveBack(OpMessages& messages) {
  RETURN_IF_ERROR(FinishNorm(0, messages));
  return Hand("gradients", residual_gradient_, messages);
}

}  // namespace crossmesh::grid_training

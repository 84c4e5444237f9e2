#include "common/base/status_macros.h"
#include "examples/tensor_parallel_training/device_pass.h"

#include <utility>

#include <absl/strings/str_cat.h>

namespace crossmesh::grid_training {

DevicePass::Exchange DevicePass::GradientSum(const MatrixUse& use) const {
  return {.name = NameOf(use, "gradient_sum"),
          .rows = RowCount(On(use), use.columns),
          .columns = use.matrix.k / On(use).grid[use.summed]};
}

absl::Status DevicePass::ArriveBack(size_t place, OpMessages& messages) {
  const MatrixUse* const from = place == uses_.size() ? nullptr : &uses_[place];
  ASSIGN_OR_RETURN(residual_gradient_,
                   Receive(Stream("gradients", from, &uses_[place - 1]), messages));
  return absl::OkStatus();
}

absl::Status DevicePass::FinishNorm(size_t place, OpMessages& messages) {
  const MatrixUse& use = uses_[place];
  const Kept& kept = kept_[place];
  ASSIGN_OR_RETURN(const Matrix sums, Receive({.name = NameOf(use, "norm_gradient_sum"),
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
    const bool is_last = place + 1 == uses_.size() || uses_[place + 1].is_joint;
    if (!is_last) RETURN_IF_ERROR(FinishNorm(place + 1, messages));
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
  const std::string rows = NameOf(use, "gradient_rows");
  if (messages.Takes(rows)) return messages.Write(rows, gradient);
  kept_[place].output_gradient = std::move(gradient);
  return absl::OkStatus();
}

absl::Status DevicePass::InputGradient(size_t place, OpMessages& messages) {
  const MatrixUse& use = uses_[place];
  Kept& kept = kept_[place];
  const std::string rows = NameOf(use, "gradient_rows");
  if (messages.Brings(rows)) {
    ASSIGN_OR_RETURN(kept.output_gradient, messages.Read(rows, RowCount(On(use), std::nullopt),
                                                         use.matrix.n / On(use).grid[use.columns]));
  }
  ASSIGN_OR_RETURN(const Matrix weights, parameters_.Block(use));
  return Hand(NameOf(use, "gradient_sum"), kept.output_gradient * weights.transpose(), messages);
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
  return Hand(NameOf(use, "norm_gradient_sum"), NormGradientSums(kept.scaled_gradient, kept.norm),
              messages);
}

absl::Status DevicePass::EmbedGradient(OpMessages& messages) {
  RETURN_IF_ERROR(FinishNorm(0, messages));
  const Interval rows = RowsOf(role_, On(uses_.front()), id_, GridAxis::kR);
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

absl::Status DevicePass::LeaveBack(size_t place, OpMessages& messages) {
  RETURN_IF_ERROR(FinishNorm(place, messages));
  const MatrixUse* const to = place == 0 ? nullptr : &uses_[place - 1];
  return Hand(Stream("gradients", &uses_[place], to).name, residual_gradient_, messages);
}

}  // namespace crossmesh::grid_training

// The pass forward. device_pass_backward.cc has the way back.

#include "examples/tensor_parallel_training/device_pass.h"

#include "common/base/status_macros.h"

#include <cmath>
#include <utility>

#include <absl/strings/str_cat.h>

namespace crossmesh::grid_training {

DevicePass::DevicePass(const Shared& shared, PassId id)
    : role_(shared.role),
      uses_(shared.uses),
      samples_(shared.samples),
      parameters_(shared.parameters),
      id_(id),
      kept_(uses_.size()) {}

absl::StatusOr<Matrix> DevicePass::Receive(const Exchange& exchange, OpMessages& messages) {
  if (messages.Brings(exchange.name)) {
    return messages.Read(exchange.name, exchange.rows, exchange.columns);
  }
  auto left = left_.extract(exchange.name);
  if (left.empty()) {
    return absl::FailedPreconditionError(absl::StrCat("expected a message ", exchange.name,
                                                      ", or that it was left here, found none"));
  }
  if (left.mapped().rows() != exchange.rows || left.mapped().cols() != exchange.columns) {
    return absl::FailedPreconditionError(absl::StrCat(
        "what was left of ", exchange.name, ": expected [", exchange.rows, ", ", exchange.columns,
        "], found [", left.mapped().rows(), ", ", left.mapped().cols(), "]"));
  }
  return std::move(left.mapped());
}

absl::Status DevicePass::Hand(absl::string_view name, Matrix values, OpMessages& messages) {
  if (messages.Takes(name)) return messages.Write(name, values);
  left_[std::string(name)] = std::move(values);
  return absl::OkStatus();
}

std::string DevicePass::NameOf(const MatrixUse& use, absl::string_view what) const {
  return absl::StrCat(On(use).prefix, use.matrix.name, ".", what);
}

Eigen::Index DevicePass::RowCount(const GridPlace& on,
                                  std::optional<GridAxis> scattered_over) const {
  return RowsOf(role_, on, id_, scattered_over).length();
}

DevicePass::Exchange DevicePass::Stream(absl::string_view what, const MatrixUse* from,
                                        const MatrixUse* to) const {
  const GridPlace& on = On(to == nullptr ? *from : *to);
  Exchange stream{.name = std::string(what),
                  .rows = RowCount(on, GridAxis::kR),
                  .columns = role_.settings.model.hidden / on.grid.c()};
  if (from != nullptr && to != nullptr) {
    stream.name = absl::StrCat(On(*from).prefix, On(*to).prefix, what);
  }
  return stream;
}

DevicePass::Exchange DevicePass::Sum(const MatrixUse& use) const {
  return {.name = NameOf(use, "sum"),
          .rows = RowCount(On(use), use.summed),
          .columns = use.matrix.n / On(use).grid[use.columns]};
}

const Matrix& DevicePass::Bias(const MatrixUse& use) const {
  return parameters_.Vector(absl::StrCat(use.key, ".bias"));
}

AttentionSizes DevicePass::attention() const {
  return {.sequence = role_.settings.sequence, .head_width = role_.settings.model.head_width};
}

absl::Status DevicePass::AddOutput(const MatrixUse& use, OpMessages& messages) {
  ASSIGN_OR_RETURN(const Matrix output, Receive(Sum(use), messages));
  // Once, of the sum: every summand's would be as many biases as there are summands.
  residual_ += output.rowwise() + Bias(use).row(0);
  return absl::OkStatus();
}

absl::Status DevicePass::Embed() {
  const Matrix& tokens = parameters_.stored("tokens");
  const Matrix& positions = parameters_.stored("positions");
  const Interval rows = RowsOf(role_, On(uses_.front()), id_, GridAxis::kR);
  residual_.resize(rows.length(), tokens.cols());
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    residual_.row(row - rows.begin) =
        tokens.row(samples_.tokens[row]) + positions.row(row % role_.settings.sequence);
  }
  return absl::OkStatus();
}

absl::Status DevicePass::Arrive(size_t place, OpMessages& messages) {
  const MatrixUse* const before = place == 0 ? nullptr : &uses_[place - 1];
  ASSIGN_OR_RETURN(residual_, Receive(Stream("activations", before, &uses_[place]), messages));
  return absl::OkStatus();
}

absl::Status DevicePass::Norm(size_t place, OpMessages& messages) {
  const MatrixUse& use = uses_[place];
  // To another grid the sum has gone with the residual stream.
  if (place > 0 && !use.is_joint) RETURN_IF_ERROR(AddOutput(uses_[place - 1], messages));
  return Hand(NameOf(use, "norm_sum"), NormSums(residual_), messages);
}

absl::Status DevicePass::Input(size_t place, OpMessages& messages) {
  const MatrixUse& use = uses_[place];
  Kept& kept = kept_[place];
  Matrix input;
  if (!use.matrix.transposed) {
    ASSIGN_OR_RETURN(
        const Matrix sums,
        Receive({.name = NameOf(use, "norm_sum"), .rows = residual_.rows(), .columns = 2},
                messages));
    kept.norm = Normalize(residual_, sums, use.matrix.k);
    const auto gain = parameters_.Vector(absl::StrCat(use.key, ".norm_gain")).row(0).array();
    const auto bias = parameters_.Vector(absl::StrCat(use.key, ".norm_bias")).row(0).array();
    input = (kept.norm.values.array().rowwise() * gain).rowwise() + bias;
  } else {
    const MatrixUse& before = uses_[place - 1];
    ASSIGN_OR_RETURN(const Matrix sum, Receive(Sum(before), messages));
    kept.before = sum.rowwise() + Bias(before).row(0);
    input = before.matrix.name == "qkv" ? Attention(kept.before, attention()) : Gelu(kept.before);
  }
  const std::string rows = NameOf(use, "rows");
  if (messages.Takes(rows)) return messages.Write(rows, input);
  kept.input = std::move(input);
  return absl::OkStatus();
}

absl::Status DevicePass::Forward(size_t place, OpMessages& messages) {
  const MatrixUse& use = uses_[place];
  Kept& kept = kept_[place];
  const std::string rows = NameOf(use, "rows");
  if (messages.Brings(rows)) {
    ASSIGN_OR_RETURN(kept.input, messages.Read(rows, RowCount(On(use), std::nullopt),
                                               use.matrix.k / On(use).grid[use.summed]));
  }
  ASSIGN_OR_RETURN(const Matrix weights, parameters_.Block(use));
  return Hand(NameOf(use, "sum"), kept.input * weights, messages);
}

absl::Status DevicePass::Leave(size_t place, OpMessages& messages) {
  const MatrixUse& before = uses_[place - 1];
  RETURN_IF_ERROR(AddOutput(before, messages));
  const MatrixUse* const to = place == uses_.size() ? nullptr : &uses_[place];
  return Hand(Stream("activations", &before, to).name, residual_, messages);
}

absl::Status DevicePass::Loss(OpMessages& messages) {
  ASSIGN_OR_RETURN(logits_, Receive(Sum(uses_.back()), messages));
  return Hand(absl::StrCat(On(uses_.back()).prefix, "loss.max"), logits_.rowwise().maxCoeff(),
              messages);
}

absl::Status DevicePass::LossSum(OpMessages& messages) {
  ASSIGN_OR_RETURN(greatest_, Receive({.name = absl::StrCat(On(uses_.back()).prefix, "loss.max"),
                                       .rows = logits_.rows(),
                                       .columns = 1},
                                      messages));
  const Interval rows = RowsOf(role_, On(uses_.back()), id_, GridAxis::kC);
  const Eigen::Index first_token = On(uses_.back()).place[GridAxis::kR] * logits_.cols();
  Matrix sums = Matrix::Zero(logits_.rows(), 2);
  for (Eigen::Index row = 0; row < logits_.rows(); ++row) {
    sums(row, 0) = (logits_.row(row).array() - greatest_(row, 0)).exp().sum();
    const Eigen::Index target = samples_.targets[rows.begin + row] - first_token;
    if (target >= 0 && target < logits_.cols()) sums(row, 1) = logits_(row, target);
  }
  return Hand(absl::StrCat(On(uses_.back()).prefix, "loss.sum"), std::move(sums), messages);
}

absl::Status DevicePass::Backward(OpMessages& messages) {
  ASSIGN_OR_RETURN(const Matrix sums,
                   Receive({.name = absl::StrCat(On(uses_.back()).prefix, "loss.sum"),
                            .rows = logits_.rows(),
                            .columns = 2},
                           messages));
  for (Eigen::Index row = 0; row < sums.rows(); ++row) {
    loss_ += static_cast<double>(std::log(sums(row, 0)) + greatest_(row, 0) - sums(row, 1));
  }
  logits_ = LogitGradient(sums);
  return absl::OkStatus();
}

Matrix DevicePass::LogitGradient(const Matrix& sums) const {
  const Interval rows = RowsOf(role_, On(uses_.back()), id_, GridAxis::kC);
  const Eigen::Index first_token = On(uses_.back()).place[GridAxis::kR] * logits_.cols();
  Matrix gradient(logits_.rows(), logits_.cols());
  for (Eigen::Index row = 0; row < gradient.rows(); ++row) {
    gradient.row(row) = (logits_.row(row).array() - greatest_(row, 0)).exp() / sums(row, 0);
    const Eigen::Index target = samples_.targets[rows.begin + row] - first_token;
    if (target >= 0 && target < gradient.cols()) gradient(row, target) -= 1;
  }
  return gradient / static_cast<float>(role_.settings.tokens());
}

}  // namespace crossmesh::grid_training

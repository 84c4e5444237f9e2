#include "examples/pipeline_training/sharded_linear.h"

namespace crossmesh::training {
namespace {

// In the order of the devices.
Matrix Sum(const Shards& shards) {
  Matrix sum = shards.front();
  for (size_t device = 1; device < shards.size(); ++device) sum += shards[device];
  return sum;
}

}  // namespace

Shards Everywhere(const Matrix& whole, int devices) { return Shards(devices, whole); }

ShardedLinear::ShardedLinear(const Matrix& weights, Parallelism parallelism, int devices)
    : parallelism_(parallelism) {
  const auto columns = weights.cols() / devices;
  const auto rows = weights.rows() / devices;
  for (int device = 0; device < devices; ++device) {
    switch (parallelism) {
      case Parallelism::kColumns:
        weights_.push_back(weights.middleCols(device * columns, columns));
        break;
      case Parallelism::kRows:
        weights_.push_back(weights.middleRows(device * rows, rows));
        break;
      case Parallelism::kBatch:
        weights_.push_back(weights);
        break;
    }
    gradient_.push_back(Matrix::Zero(weights_[device].rows(), weights_[device].cols()));
  }
}

Box ShardedLinear::BoxOf(int device) const {
  const int64_t rows = weights_[device].rows(), columns = weights_[device].cols();
  const int64_t row = parallelism_ == Parallelism::kRows ? device * rows : 0;
  const int64_t column = parallelism_ == Parallelism::kColumns ? device * columns : 0;
  return Box({{row, row + rows}, {column, column + columns}});
}

Shards ShardedLinear::Forward(const Shards& input) const {
  Shards output;
  for (int device = 0; device < devices(); ++device) {
    output.push_back(input[device] * weights_[device]);
  }
  return parallelism_ == Parallelism::kRows ? Everywhere(Sum(output), devices()) : output;
}

Shards ShardedLinear::InputGradient(const Shards& output_gradient) const {
  Shards input_gradient;
  for (int device = 0; device < devices(); ++device) {
    input_gradient.push_back(output_gradient[device] * weights_[device].transpose());
  }
  return parallelism_ == Parallelism::kColumns ? Everywhere(Sum(input_gradient), devices())
                                               : input_gradient;
}

void ShardedLinear::AddWeightGradient(const Shards& input, const Shards& output_gradient) {
  Shards added;
  for (int device = 0; device < devices(); ++device) {
    added.push_back(input[device].transpose() * output_gradient[device]);
  }
  if (parallelism_ == Parallelism::kBatch) added = Everywhere(Sum(added), devices());
  for (int device = 0; device < devices(); ++device) gradient_[device] += added[device];
}

void ShardedLinear::ApplyGradient(float learning_rate) {
  for (int device = 0; device < devices(); ++device) {
    weights_[device] -= learning_rate * gradient_[device];
  }
  DropGradient();
}

void ShardedLinear::DropGradient() {
  for (Matrix& gradient : gradient_) gradient.setZero();
}

}  // namespace crossmesh::training

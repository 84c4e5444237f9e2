#include "examples/tensor_parallel_training/optimizer.h"

#include <cmath>

namespace crossmesh::grid_training {
namespace {

constexpr double kFirstDecay = 0.9;
constexpr double kSecondDecay = 0.999;
// Above what rounding makes of gradients that are 0, such as those of the biases of keys: with the
// paper's 1e-8 they would be followed at the full rate, wherever rounding points.
constexpr double kEpsilon = 1e-5;

}  // namespace

template <typename Number>
void Descend(const Optimizer& optimizer, const MatrixOf<Number>& gradient,
             MatrixOf<Number>& values) {
  values -= static_cast<Number>(optimizer.learning_rate) * gradient;
}

template <typename Number>
void DescendByAdam(const Optimizer& optimizer, int64_t step, const MatrixOf<Number>& gradient,
                   AdamTensors<Number> tensors) {
  const auto power = static_cast<double>(step);
  const auto first_scale = static_cast<Number>(1 / (1 - std::pow(kFirstDecay, power)));
  const auto second_scale = static_cast<Number>(1 / (1 - std::pow(kSecondDecay, power)));
  const auto rate = static_cast<Number>(optimizer.learning_rate);
  // One by one: with vectors of a processor the last elements of a part could be rounded otherwise
  // than in the middle of the whole.
  for (Eigen::Index i = 0; i < gradient.size(); ++i) {
    const Number slope = gradient.data()[i];
    Number& first = tensors.first_moment.data()[i];
    Number& second = tensors.second_moment.data()[i];
    first += static_cast<Number>(1 - kFirstDecay) * (slope - first);
    second += static_cast<Number>(1 - kSecondDecay) * (slope * slope - second);
    tensors.values.data()[i] -= rate * (first * first_scale) /
                                (std::sqrt(second * second_scale) + static_cast<Number>(kEpsilon));
  }
}

template void Descend(const Optimizer&, const MatrixOf<float>&, MatrixOf<float>&);
template void Descend(const Optimizer&, const MatrixOf<double>&, MatrixOf<double>&);
template void DescendByAdam(const Optimizer&, int64_t, const MatrixOf<float>&, AdamTensors<float>);
template void DescendByAdam(const Optimizer&, int64_t, const MatrixOf<double>&,
                            AdamTensors<double>);

}  // namespace crossmesh::grid_training

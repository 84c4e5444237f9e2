#pragma once

#include "examples/tensor_parallel_training/layer_math.h"

#include <cstdint>

namespace crossmesh::grid_training {

// How values follow their gradient: by gradient descent, or by Adam (Kingma and Ba, arXiv
// 1412.6980, with its constants but for epsilon). Each element goes by itself, so a part goes as
// the whole does.
struct Optimizer {
  float learning_rate = 0;
  bool is_adam = false;
};

// What Adam changes: values and, of their shape, the means of their gradients and of the squares.
template <typename Number>
struct AdamTensors {
  MatrixOf<Number>& values;
  MatrixOf<Number>& first_moment;
  MatrixOf<Number>& second_moment;
};

template <typename Number>
void Descend(const Optimizer& optimizer, const MatrixOf<Number>& gradient,
             MatrixOf<Number>& values);
// `step` counts from 1.
template <typename Number>
void DescendByAdam(const Optimizer& optimizer, int64_t step, const MatrixOf<Number>& gradient,
                   AdamTensors<Number> tensors);

}  // namespace crossmesh::grid_training

#pragma once

#include "examples/tensor_parallel_training/parameters.h"

#include <vector>

namespace crossmesh::grid_training {

// The loss of a step with these parameters, in one process and of the whole batch at once: the mean
// over its tokens of the cross-entropy of the next one. Sets the gradients of all parameters. The
// reference for grids; Number is float or double.
template <typename Number>
double LossAndGradients(const TrainingSettings& settings, const TensorsOf<Number>& parameters,
                        TensorsOf<Number>& gradients);

// The loss of each step in one process.
template <typename Number>
std::vector<double> TrainAlone(const TrainingSettings& settings, int steps);

template <typename Number>
TensorsOf<Number> CastTensors(const Tensors& tensors) {
  TensorsOf<Number> cast;
  for (const auto& [name, tensor] : tensors) cast[name] = tensor.template cast<Number>();
  return cast;
}

}  // namespace crossmesh::grid_training

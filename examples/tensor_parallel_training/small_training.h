#pragma once

#include "examples/tensor_parallel_training/parameters.h"

namespace crossmesh::grid_training {

// So small that a step takes no time, and that 8 devices can cut it in every way.
inline TrainingSettings SmallTraining(int64_t layers = 2) {
  TrainingSettings settings{.model = PlainTransformer("small", layers, 32, 8),
                            .batch = 16,
                            .sequence = 8,
                            .optimizer = {.learning_rate = 0.5F}};
  settings.model.vocabulary = 64;
  settings.model.tied = false;
  return settings;
}

inline TrainingSettings SmallAdamTraining(int64_t layers = 2) {
  TrainingSettings settings = SmallTraining(layers);
  settings.optimizer = {.learning_rate = 0.005F, .is_adam = true};
  return settings;
}

}  // namespace crossmesh::grid_training

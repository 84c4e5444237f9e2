#pragma once

#include "examples/tensor_parallel_training/model.h"
#include "examples/tensor_parallel_training/parameters.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include <gtest/gtest.h>

namespace crossmesh::grid_training {

inline double GreatestDifference(const std::vector<double>& some,
                                 const std::vector<double>& others) {
  EXPECT_EQ(some.size(), others.size());
  double greatest = 0;
  for (size_t i = 0; i < std::min(some.size(), others.size()); ++i) {
    greatest = std::max(greatest, std::abs(some[i] - others[i]));
  }
  return greatest;
}

// The training in one process, exactly and in float.
struct ExactTraining {
  ExactTraining(const TrainingSettings& settings, int steps)
      : exact(TrainAlone<double>(settings, steps)),
        rounding(GreatestDifference(TrainAlone<float>(settings, steps), exact)) {}

  // A grid is as far from the exact training as one process is, several times (README.md).
  static constexpr double kSeveral = 4;
  void ExpectNear(const std::vector<double>& losses) const {
    EXPECT_LT(GreatestDifference(losses, exact), kSeveral * rounding);
  }

  const std::vector<double> exact;
  const double rounding;
};

}  // namespace crossmesh::grid_training

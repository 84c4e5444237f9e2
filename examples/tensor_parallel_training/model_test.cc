#include "examples/tensor_parallel_training/model.h"

#include "common/plan/testing/random_source.h"
#include "examples/tensor_parallel_training/small_training.h"

#include <cmath>
#include <cstdint>

#include <absl/strings/str_cat.h>
#include <gtest/gtest.h>

namespace crossmesh::grid_training {
namespace {

TEST(ModelTest, GradientsAreTheDifferencesOfTheLoss) {
  TrainingSettings settings = SmallTraining();
  settings.batch = 4;
  TensorsOf<double> parameters = CastTensors<double>(InitialParameters(settings));
  TensorsOf<double> gradients, ignored;
  LossAndGradients(settings, parameters, gradients);
  ASSERT_EQ(gradients.size(), parameters.size());

  constexpr double kStep = 1e-4;  // the central difference is wrong by some kStep^2
  constexpr uint64_t kSeed = 11;
  RandomSource random(kSeed);
  for (auto& [name, values] : parameters) {
    const double greatest = gradients[name].cwiseAbs().maxCoeff();
    EXPECT_GT(greatest, 1e-4) << name;
    for (int trial = 0; trial < 4; ++trial) {
      const int64_t place = random.Below(values.size());
      SCOPED_TRACE(absl::StrCat("seed ", kSeed, ", ", name, " at ", place));
      double& value = values.data()[place];
      const double before = value;
      value = before + kStep;
      const double above = LossAndGradients(settings, parameters, ignored);
      value = before - kStep;
      const double below = LossAndGradients(settings, parameters, ignored);
      value = before;
      EXPECT_NEAR(gradients[name].data()[place], (above - below) / (2 * kStep), 1e-5 * greatest);
    }
  }
}

TEST(ModelTest, AttentionSeesNoLaterTokens) {
  const AttentionSizes sizes = {.sequence = 4, .head_width = 2};
  Matrix qkv = Matrix::Random(8, 12);  // two sequences of two heads
  const Matrix before = Attention(qkv, sizes);
  qkv.row(2) *= 2;
  const Matrix changed = Attention(qkv, sizes) - before;
  for (const int row : {0, 1, 4, 5, 6, 7}) EXPECT_EQ(changed.row(row).norm(), 0) << row;
  for (const int row : {2, 3}) EXPECT_GT(changed.row(row).norm(), 0.01) << row;
}

TEST(ModelTest, BeginsWithNoIdeaAndLearnsItsBatch) {
  const TrainingSettings settings = SmallTraining();
  const std::vector<double> losses = TrainAlone<float>(settings, 20);
  // All tokens alike have a loss of log 64, and logits that are spread by chance somewhat more.
  EXPECT_GT(losses.front(), std::log(settings.model.vocabulary));
  EXPECT_LT(losses.front(), std::log(settings.model.vocabulary) + 1);
  EXPECT_LT(losses.back(), 0.75 * losses.front());
}

}  // namespace
}  // namespace crossmesh::grid_training

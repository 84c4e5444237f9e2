#include "examples/pipeline_training/model.h"

#include "common/plan/testing/random_source.h"

#include <cstdint>

#include <absl/strings/str_cat.h>
#include <gtest/gtest.h>

namespace crossmesh::training {
namespace {

// The formula of the model for the whole batch at once, rounded to 16 digits, not to 7.
double LossOf(const std::array<Eigen::MatrixXd, Model::kWeights>& weights) {
  const Eigen::MatrixXd x = Model::Inputs(0, Model::kBatch).cast<double>();
  const Eigen::MatrixXd h0 = (x * weights[0]).array().tanh();
  const Eigen::MatrixXd h1 = (h0 * weights[1]).array().tanh();
  const Eigen::MatrixXd h2 = (h1 * weights[2]).array().tanh();
  const Eigen::MatrixXd y = h2 * weights[3] + h0 * weights[4];
  const Eigen::MatrixXd error = y - Model::Targets(0, Model::kBatch).cast<double>();
  return 0.5 * error.squaredNorm() / Model::kBatch;
}

TEST(ModelTest, GradientsAreTheDifferencesOfTheLoss) {
  Weights weights, gradients;
  std::array<Eigen::MatrixXd, Model::kWeights> exact;
  for (int i = 0; i < Model::kWeights; ++i) {
    weights[i] = Model::InitialWeights(i);
    exact[i] = weights[i].cast<double>();
  }
  const double loss = LossAndGradients(weights, gradients);
  EXPECT_NEAR(loss, LossOf(exact), 1e-6 * loss);

  constexpr double kStep = 1e-4;  // the central difference is wrong by some kStep^2
  constexpr uint64_t kSeed = 11;
  RandomSource random(kSeed);
  for (int i = 0; i < Model::kWeights; ++i) {
    const double greatest = gradients[i].cwiseAbs().maxCoeff();
    for (int trial = 0; trial < 40; ++trial) {
      const int64_t row = random.Below(exact[i].rows());
      const int64_t column = random.Below(exact[i].cols());
      SCOPED_TRACE(absl::StrCat("seed ", kSeed, ", weight ", i, " at [", row, ", ", column, "]"));
      double& weight = exact[i](row, column);
      const double before = weight;
      weight = before + kStep;
      const double above = LossOf(exact);
      weight = before - kStep;
      const double below = LossOf(exact);
      weight = before;
      EXPECT_NEAR(gradients[i](row, column), (above - below) / (2 * kStep), 1e-5 * greatest);
    }
  }
}

// The mean over the samples, so microbatches of other sizes count by their samples.
TEST(ModelTest, MicrobatchesAreTheBatch) {
  EXPECT_EQ(Model::FirstSample(std::size(Model::kMicrobatches)), Model::kBatch);
}

}  // namespace
}  // namespace crossmesh::training

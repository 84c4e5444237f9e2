#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include <Eigen/Core>

namespace crossmesh::training {

// Row-major, as tiles are.
using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

// A small network with a skip connection, in four stages:
//
//   h0 = tanh(x W0)    h1 = tanh(h0 W1)    h2 = tanh(h1 W2)    y = h2 W3 + h0 W4
//
// trained by gradient descent on the mean square of y - t. Every function of it is a plain one of
// whole matrices; a row is a sample.
struct Model {
  static constexpr int kStages = 4;
  static constexpr int kWeights = 5;
  static constexpr int kInputs = 24;  // columns of x
  static constexpr int kOutputs = 8;  // columns of y
  static constexpr int kRows[kWeights] = {kInputs, 48, 64, 32, 48};
  static constexpr int kColumns[kWeights] = {48, 64, 32, kOutputs, kOutputs};

  static constexpr int kMicrobatches[] = {8, 8, 8, 5};  // samples; the last one is uneven
  static constexpr int kBatch = 29;
  static constexpr float kLearningRate = 0.5F;

  // The first sample of a microbatch.
  static int FirstSample(int microbatch);
  // The same in every process.
  static Matrix InitialWeights(int index);
  static Matrix Inputs(int first_sample, int samples);   // [samples, kInputs]
  static Matrix Targets(int first_sample, int samples);  // [samples, kOutputs]
};

using Weights = std::array<Matrix, Model::kWeights>;

// The loss of a step with these weights, in one process: forward and backward of one microbatch
// after the other. Sets the gradients of the weights.
double LossAndGradients(const Weights& weights, Weights& gradients);

// The loss of each step, of a training in one process.
std::vector<double> TrainAlone(int steps);

}  // namespace crossmesh::training

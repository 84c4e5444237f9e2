#include "examples/pipeline_training/model.h"

#include <cmath>
#include <random>

namespace crossmesh::training {
namespace {

// Numbers from -scale to scale, the same with every standard library.
Matrix RandomMatrix(uint32_t seed, int rows, int columns, float scale) {
  std::mt19937 engine(seed);
  Matrix matrix(rows, columns);
  for (int row = 0; row < rows; ++row) {
    for (int column = 0; column < columns; ++column) {
      const auto part = static_cast<float>(engine()) / static_cast<float>(std::mt19937::max());
      matrix(row, column) = scale * (2 * part - 1);
    }
  }
  return matrix;
}

Matrix TanhGradient(const Matrix& gradient, const Matrix& output) {
  return (gradient.array() * (1 - output.array().square())).matrix();
}

}  // namespace

int Model::FirstSample(int microbatch) {
  int first = 0;
  for (int m = 0; m < microbatch; ++m) first += kMicrobatches[m];
  return first;
}

Matrix Model::InitialWeights(int index) {
  const float scale = std::sqrt(3.0F / static_cast<float>(kRows[index]));
  return RandomMatrix(100 + index, kRows[index], kColumns[index], scale);
}

Matrix Model::Inputs(int first_sample, int samples) {
  return RandomMatrix(1, kBatch, kInputs, 1).middleRows(first_sample, samples);
}

Matrix Model::Targets(int first_sample, int samples) {
  const Matrix teacher = RandomMatrix(2, kInputs, kOutputs, 0.5F);
  return (Inputs(first_sample, samples) * teacher).array().sin().matrix();
}

double LossAndGradients(const Weights& weights, Weights& gradients) {
  for (int i = 0; i < Model::kWeights; ++i) {
    gradients[i] = Matrix::Zero(weights[i].rows(), weights[i].cols());
  }
  double loss = 0;
  for (int m = 0; m < static_cast<int>(std::size(Model::kMicrobatches)); ++m) {
    const int first = Model::FirstSample(m);
    const int samples = Model::kMicrobatches[m];
    const Matrix x = Model::Inputs(first, samples);
    const Matrix h0 = (x * weights[0]).array().tanh();
    const Matrix h1 = (h0 * weights[1]).array().tanh();
    const Matrix h2 = (h1 * weights[2]).array().tanh();
    const Matrix error = h2 * weights[3] + h0 * weights[4] - Model::Targets(first, samples);
    loss += 0.5 * error.cast<double>().squaredNorm() / Model::kBatch;
    const Matrix dy = error / Model::kBatch;
    const Matrix dz2 = TanhGradient(dy * weights[3].transpose(), h2);
    const Matrix dz1 = TanhGradient(dz2 * weights[2].transpose(), h1);
    const Matrix dz0 = TanhGradient(dz1 * weights[1].transpose() + dy * weights[4].transpose(), h0);
    gradients[0] += x.transpose() * dz0;
    gradients[1] += h0.transpose() * dz1;
    gradients[2] += h1.transpose() * dz2;
    gradients[3] += h2.transpose() * dy;
    gradients[4] += h0.transpose() * dy;
  }
  return loss;
}

std::vector<double> TrainAlone(int steps) {
  Weights weights, gradients;
  for (int i = 0; i < Model::kWeights; ++i) weights[i] = Model::InitialWeights(i);
  std::vector<double> losses;
  for (int step = 0; step < steps; ++step) {
    losses.push_back(LossAndGradients(weights, gradients));
    for (int i = 0; i < Model::kWeights; ++i) weights[i] -= Model::kLearningRate * gradients[i];
  }
  return losses;
}

}  // namespace crossmesh::training

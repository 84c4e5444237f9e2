#include "examples/tensor_parallel_training/layer_math.h"

#include <cmath>
#include <numbers>

namespace crossmesh::grid_training {
namespace {

constexpr double kNormEpsilon = 1e-5;

// Of one head and sequence, rows over keys: which are no later than the query.
template <typename Number>
MatrixOf<Number> Probabilities(const MatrixOf<Number>& query, const MatrixOf<Number>& key) {
  const Number scale = 1 / std::sqrt(static_cast<Number>(query.cols()));
  MatrixOf<Number> probabilities = (query * key.transpose()) * scale;
  for (Eigen::Index row = 0; row < probabilities.rows(); ++row) {
    auto seen = probabilities.row(row).head(row + 1);
    const Number greatest = seen.maxCoeff();
    seen = (seen.array() - greatest).exp().matrix().eval();
    seen /= seen.sum();
    probabilities.row(row).tail(probabilities.cols() - row - 1).setZero();
  }
  return probabilities;
}

// Where a head of a sequence is in qkv.
struct HeadPlace {
  Eigen::Index first_row, rows, first_column, width;

  // 0: query, 1: key, 2: value.
  template <typename Number>
  MatrixOf<Number> Part(const MatrixOf<Number>& qkv, int part) const {
    return qkv.block(first_row, 3 * first_column + part * width, rows, width);
  }
};

template <typename Visit>
void VisitHeads(Eigen::Index rows, Eigen::Index columns, const AttentionSizes& sizes, Visit visit) {
  for (Eigen::Index row = 0; row < rows; row += sizes.sequence) {
    for (Eigen::Index column = 0; column < columns; column += sizes.head_width) {
      visit(HeadPlace{row, sizes.sequence, column, sizes.head_width});
    }
  }
}

template <typename Number>
void HeadGradient(const HeadPlace& head, const MatrixOf<Number>& qkv,
                  const MatrixOf<Number>& output_gradient, MatrixOf<Number>& gradient) {
  const MatrixOf<Number> query = head.Part(qkv, 0);
  const MatrixOf<Number> key = head.Part(qkv, 1);
  const MatrixOf<Number> value = head.Part(qkv, 2);
  const MatrixOf<Number> probabilities = Probabilities(query, key);
  const MatrixOf<Number> of_output =
      output_gradient.block(head.first_row, head.first_column, head.rows, head.width);
  const MatrixOf<Number> of_probabilities = of_output * value.transpose();
  MatrixOf<Number> of_scores = probabilities.cwiseProduct(of_probabilities);
  for (Eigen::Index row = 0; row < of_scores.rows(); ++row) {
    const Number sum = of_scores.row(row).sum();
    of_scores.row(row) -= sum * probabilities.row(row);
  }
  of_scores /= std::sqrt(static_cast<Number>(head.width));
  const auto part = [&](int which) {
    return gradient.block(head.first_row, 3 * head.first_column + which * head.width, head.rows,
                          head.width);
  };
  part(0) = of_scores * key;
  part(1) = of_scores.transpose() * query;
  part(2) = probabilities.transpose() * of_output;
}

}  // namespace

template <typename Number>
MatrixOf<Number> NormSums(const MatrixOf<Number>& input) {
  MatrixOf<Number> sums(input.rows(), 2);
  sums.col(0) = input.rowwise().sum();
  sums.col(1) = input.rowwise().squaredNorm();
  return sums;
}

template <typename Number>
Normed<Number> Normalize(const MatrixOf<Number>& input, const MatrixOf<Number>& sums,
                         int64_t width) {
  Normed<Number> normed{.values = input, .scale = MatrixOf<Number>(input.rows(), 1)};
  const auto count = static_cast<Number>(width);
  for (Eigen::Index row = 0; row < input.rows(); ++row) {
    const Number mean = sums(row, 0) / count;
    const Number variance = sums(row, 1) / count - mean * mean;
    const Number scale = 1 / std::sqrt(variance + static_cast<Number>(kNormEpsilon));
    normed.scale(row, 0) = scale;
    normed.values.row(row) = (input.row(row).array() - mean) * scale;
  }
  return normed;
}

template <typename Number>
MatrixOf<Number> NormGradientSums(const MatrixOf<Number>& gradient, const Normed<Number>& normed) {
  MatrixOf<Number> sums(gradient.rows(), 2);
  sums.col(0) = gradient.rowwise().sum();
  sums.col(1) = gradient.cwiseProduct(normed.values).rowwise().sum();
  return sums;
}

template <typename Number>
MatrixOf<Number> NormGradient(const MatrixOf<Number>& gradient, const Normed<Number>& normed,
                              const MatrixOf<Number>& sums, int64_t width) {
  const MatrixOf<Number> means = sums / static_cast<Number>(width);
  MatrixOf<Number> input_gradient(gradient.rows(), gradient.cols());
  for (Eigen::Index row = 0; row < gradient.rows(); ++row) {
    input_gradient.row(row) = (gradient.row(row).array() - means(row, 0) -
                               normed.values.row(row).array() * means(row, 1)) *
                              normed.scale(row, 0);
  }
  return input_gradient;
}

template <typename Number>
MatrixOf<Number> Attention(const MatrixOf<Number>& qkv, const AttentionSizes& sizes) {
  MatrixOf<Number> output(qkv.rows(), qkv.cols() / 3);
  VisitHeads(output.rows(), output.cols(), sizes, [&](const HeadPlace& head) {
    output.block(head.first_row, head.first_column, head.rows, head.width) =
        Probabilities(head.Part(qkv, 0), head.Part(qkv, 1)) * head.Part(qkv, 2);
  });
  return output;
}

template <typename Number>
MatrixOf<Number> AttentionGradient(const MatrixOf<Number>& qkv,
                                   const MatrixOf<Number>& output_gradient,
                                   const AttentionSizes& sizes) {
  MatrixOf<Number> gradient(qkv.rows(), qkv.cols());
  VisitHeads(output_gradient.rows(), output_gradient.cols(), sizes,
             [&](const HeadPlace& head) { HeadGradient(head, qkv, output_gradient, gradient); });
  return gradient;
}

template <typename Number>
MatrixOf<Number> Gelu(const MatrixOf<Number>& input) {
  return input.unaryExpr([](Number x) {
    return x / 2 * (1 + std::erf(x / static_cast<Number>(std::numbers::sqrt2)));
  });
}

template <typename Number>
MatrixOf<Number> GeluGradient(const MatrixOf<Number>& input,
                              const MatrixOf<Number>& output_gradient) {
  const MatrixOf<Number> slope = input.unaryExpr([](Number x) {
    const Number below = (1 + std::erf(x / static_cast<Number>(std::numbers::sqrt2))) / 2;
    const auto root = static_cast<Number>(std::sqrt(2 * std::numbers::pi));
    return below + x * std::exp(-x * x / 2) / root;
  });
  return output_gradient.cwiseProduct(slope);
}

// For float and double.
#define CROSSMESH_INSTANTIATE(Number)                                                           \
  template MatrixOf<Number> NormSums(const MatrixOf<Number>&);                                  \
  template Normed<Number> Normalize(const MatrixOf<Number>&, const MatrixOf<Number>&, int64_t); \
  template MatrixOf<Number> NormGradientSums(const MatrixOf<Number>&, const Normed<Number>&);   \
  template MatrixOf<Number> NormGradient(const MatrixOf<Number>&, const Normed<Number>&,        \
                                         const MatrixOf<Number>&, int64_t);                     \
  template MatrixOf<Number> Attention(const MatrixOf<Number>&, const AttentionSizes&);          \
  template MatrixOf<Number> AttentionGradient(const MatrixOf<Number>&, const MatrixOf<Number>&, \
                                              const AttentionSizes&);                           \
  template MatrixOf<Number> Gelu(const MatrixOf<Number>&);                                      \
  template MatrixOf<Number> GeluGradient(const MatrixOf<Number>&, const MatrixOf<Number>&);
CROSSMESH_INSTANTIATE(float)
CROSSMESH_INSTANTIATE(double)
#undef CROSSMESH_INSTANTIATE

}  // namespace crossmesh::grid_training

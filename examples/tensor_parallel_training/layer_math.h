// What a transformer's layers compute beside products, and back. Every function is of whole rows,
// or says what it leaves for others to add: so one device and many use the same ones. `Number` is
// float, or double for tests.

#pragma once

#include <cstdint>

#include <Eigen/Core>

namespace crossmesh::grid_training {

// Row-major, as tiles are. A row is a token; a vector is a matrix of one row.
template <typename Number>
using MatrixOf = Eigen::Matrix<Number, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using Matrix = MatrixOf<float>;

// Of each row the sum, and the sum of squares, of the features that are here: [rows, 2]. Sums of
// parts of the features add up.
template <typename Number>
MatrixOf<Number> NormSums(const MatrixOf<Number>& input);

template <typename Number>
struct Normed {
  MatrixOf<Number> values;  // of mean 0 and variance 1 over all features of the row
  MatrixOf<Number> scale;   // [rows, 1]: one over the deviation
};
// `sums` of all `width` features.
template <typename Number>
Normed<Number> Normalize(const MatrixOf<Number>& input, const MatrixOf<Number>& sums,
                         int64_t width);

// Of each row what the gradient of a norm needs of all features: [rows, 2]. `gradient` is that of
// `normed.values`; both of the features that are here.
template <typename Number>
MatrixOf<Number> NormGradientSums(const MatrixOf<Number>& gradient, const Normed<Number>& normed);
// Of the norm's input. `sums` of all `width` features.
template <typename Number>
MatrixOf<Number> NormGradient(const MatrixOf<Number>& gradient, const Normed<Number>& normed,
                              const MatrixOf<Number>& sums, int64_t width);

struct AttentionSizes {
  int64_t sequence = 0;  // rows are whole sequences of so many tokens
  int64_t head_width = 0;
};
// Causal attention. `qkv` has the columns of one head after the other, of each its query, key and
// value: so some heads are some columns. Returns the heads' values: a third of the columns.
template <typename Number>
MatrixOf<Number> Attention(const MatrixOf<Number>& qkv, const AttentionSizes& sizes);
// Of qkv.
template <typename Number>
MatrixOf<Number> AttentionGradient(const MatrixOf<Number>& qkv,
                                   const MatrixOf<Number>& output_gradient,
                                   const AttentionSizes& sizes);

// x times the probability that a normal variable is below x (Hendrycks and Gimpel, arXiv
// 1606.08415), not its approximation by tanh.
template <typename Number>
MatrixOf<Number> Gelu(const MatrixOf<Number>& input);
template <typename Number>
MatrixOf<Number> GeluGradient(const MatrixOf<Number>& input,
                              const MatrixOf<Number>& output_gradient);

}  // namespace crossmesh::grid_training

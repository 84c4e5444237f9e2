#pragma once

#include "examples/tensor_parallel_training/layer_math.h"
#include "examples/tensor_parallel_training/optimizer.h"
#include "planner/parallelism/grid.h"
#include "planner/parallelism/transformer.h"

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <absl/strings/string_view.h>

namespace crossmesh::grid_training {

// What is trained, on whatever grid: a decoder as GPT-2's, with embeddings of tokens and positions,
// a norm before attention, before the MLP and before logits, biases on all matrices but that of the
// logits, which is not the embedding's. Heads share nothing; nothing is gated; no experts.
struct TrainingSettings {
  Transformer model;
  int64_t batch = 0;     // sequences; every step has the same ones
  int64_t sequence = 0;  // tokens
  Optimizer optimizer;

  int64_t tokens() const { return batch * sequence; }
};

// By name, or parts of them.
template <typename Number>
using TensorsOf = std::map<std::string, MatrixOf<Number>, std::less<>>;
using Tensors = TensorsOf<float>;

// A tensor of the model, and how a grid cuts it. What no axis cuts is copied.
struct Parameter {
  std::string name;  // "layer3.qkv", and its ".bias", ".norm_gain", ".norm_bias"; "tokens"
  int64_t rows = 0;
  int64_t columns = 0;
  std::optional<GridAxis> row_axis = std::nullopt;
  std::optional<GridAxis> column_axis = std::nullopt;
  bool is_matrix = false;  // of a product: z cuts the block's elements, in a row
  bool is_vector = false;  // a bias, or a norm's gain or bias: may be on the diagonal
  // Of the stage, in the order of a pass: of each layer attention and MLP, then logits. What comes
  // before the first layer is on its grid.
  size_t part = 0;
};

// Of attention, or of an MLP.
inline constexpr int kPartMatrices = 2;

// A stage: some layers, with what comes before the first and after the last one.
struct StageLayers {
  int64_t first = 0;
  int64_t count = 0;
  bool is_first = true;
  bool is_last = true;
};

// "layer3.qkv", "logits".
std::string MatrixKey(std::optional<int64_t> layer, absl::string_view matrix);
// In an order that all devices have.
std::vector<Parameter> ParametersOf(const TrainingSettings& settings, const StageLayers& stage);
std::vector<Parameter> AllParameters(const TrainingSettings& settings);

// All that a step changes: of each parameter itself and, with Adam, its moments, of which each is
// cut as the parameter is.
std::vector<Parameter> StateOf(const TrainingSettings& settings, const StageLayers& stage);
std::string FirstMoment(absl::string_view parameter);
std::string SecondMoment(absl::string_view parameter);

// The same in every process; no gain is 1 and no bias 0.
Tensors InitialParameters(const TrainingSettings& settings);
// With moments, which are 0.
Tensors InitialState(const TrainingSettings& settings);

// For each token of the batch itself and the next one.
struct Samples {
  std::vector<int32_t> tokens;
  std::vector<int32_t> targets;
};
// The same in every process.
Samples SamplesOf(const TrainingSettings& settings);

}  // namespace crossmesh::grid_training

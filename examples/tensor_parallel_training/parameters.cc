#include "examples/tensor_parallel_training/parameters.h"

#include <array>
#include <cmath>
#include <random>
#include <utility>

#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>

namespace crossmesh::grid_training {
namespace {

constexpr uint32_t kSampleSeed = 1;
constexpr uint32_t kFirstParameterSeed = 100;

// From -1 to 1, the same with every standard library.
float RandomPart(std::mt19937& engine) {
  return 2 * (static_cast<float>(engine()) / static_cast<float>(std::mt19937::max())) - 1;
}

// A matrix, its bias, and the norm before it.
void AddMatrix(const BlockMatrix& matrix, std::optional<int64_t> layer,
               std::vector<Parameter>& parameters) {
  GridAxis summed = GridAxis::kC;
  GridAxis columns = GridAxis::kR;
  if (matrix.transposed) std::swap(summed, columns);
  const std::string key = MatrixKey(layer, matrix.name);
  if (!matrix.transposed) {
    for (const absl::string_view part : {"norm_gain", "norm_bias"}) {
      parameters.push_back({.name = absl::StrCat(key, ".", part),
                            .rows = 1,
                            .columns = matrix.k,
                            .column_axis = summed,
                            .is_vector = true});
    }
  }
  parameters.push_back({.name = key,
                        .rows = matrix.k,
                        .columns = matrix.n,
                        .row_axis = summed,
                        .column_axis = columns,
                        .is_matrix = true});
  if (!layer.has_value()) return;
  parameters.push_back({.name = absl::StrCat(key, ".bias"),
                        .rows = 1,
                        .columns = matrix.n,
                        .column_axis = columns,
                        .is_vector = true});
}

Matrix InitialParameter(const Parameter& parameter, uint32_t seed) {
  const bool is_gain = absl::EndsWith(parameter.name, "gain");
  float scale = 0.2F;
  if (parameter.rows > 1) scale = 0.5F;
  if (parameter.is_matrix) scale = std::sqrt(3.0F / static_cast<float>(parameter.rows));
  std::mt19937 engine(seed);
  Matrix values(parameter.rows, parameter.columns);
  for (Eigen::Index i = 0; i < values.size(); ++i) {
    values.data()[i] = (is_gain ? 1.0F : 0.0F) + scale * RandomPart(engine);
  }
  return values;
}

}  // namespace

std::string MatrixKey(std::optional<int64_t> layer, absl::string_view matrix) {
  return layer.has_value() ? absl::StrCat("layer", *layer, ".", matrix) : std::string(matrix);
}

std::vector<Parameter> ParametersOf(const TrainingSettings& settings, const StageLayers& stage) {
  const Transformer& model = settings.model;
  std::vector<Parameter> parameters;
  if (stage.is_first) {
    for (const auto& [name, rows] :
         {std::pair("tokens", model.vocabulary), std::pair("positions", settings.sequence)}) {
      parameters.push_back(
          {.name = name, .rows = rows, .columns = model.hidden, .column_axis = GridAxis::kC});
    }
  }
  const auto add = [&parameters](const BlockMatrix& matrix, std::optional<int64_t> layer,
                                 size_t part) {
    const size_t before = parameters.size();
    AddMatrix(matrix, layer, parameters);
    for (size_t i = before; i < parameters.size(); ++i) parameters[i].part = part;
  };
  for (int64_t layer = 0; layer < stage.count; ++layer) {
    const std::array<BlockMatrix, kBlockMatrices> matrices = MatricesOf(model);
    for (int i = 0; i < kBlockMatrices; ++i) {
      add(matrices[i], stage.first + layer, (layer * kBlockMatrices + i) / kPartMatrices);
    }
  }
  if (stage.is_last) {
    add({.name = "logits", .k = model.hidden, .n = model.vocabulary}, std::nullopt,
        stage.count * kBlockMatrices / kPartMatrices);
  }
  return parameters;
}

std::vector<Parameter> AllParameters(const TrainingSettings& settings) {
  return ParametersOf(settings, {.count = settings.model.layers});
}

Tensors InitialParameters(const TrainingSettings& settings) {
  Tensors tensors;
  uint32_t seed = kFirstParameterSeed;
  for (const Parameter& parameter : AllParameters(settings)) {
    tensors[parameter.name] = InitialParameter(parameter, seed++);
  }
  return tensors;
}

std::string FirstMoment(absl::string_view parameter) {
  return absl::StrCat(parameter, ".first_moment");
}

std::string SecondMoment(absl::string_view parameter) {
  return absl::StrCat(parameter, ".second_moment");
}

std::vector<Parameter> StateOf(const TrainingSettings& settings, const StageLayers& stage) {
  std::vector<Parameter> state = ParametersOf(settings, stage);
  if (!settings.optimizer.is_adam) return state;
  const size_t parameters = state.size();
  for (size_t i = 0; i < parameters; ++i) {
    for (const std::string& name : {FirstMoment(state[i].name), SecondMoment(state[i].name)}) {
      Parameter moment = state[i];
      moment.name = name;
      state.push_back(std::move(moment));
    }
  }
  return state;
}

Tensors InitialState(const TrainingSettings& settings) {
  Tensors state = InitialParameters(settings);
  for (const Parameter& part : StateOf(settings, {.count = settings.model.layers})) {
    state.try_emplace(part.name, Matrix::Zero(part.rows, part.columns));
  }
  return state;
}

Samples SamplesOf(const TrainingSettings& settings) {
  std::mt19937 engine(kSampleSeed);
  const auto next = [&] { return static_cast<int32_t>(engine() % settings.model.vocabulary); };
  Samples samples;
  for (int64_t sequence = 0; sequence < settings.batch; ++sequence) {
    int32_t token = next();
    for (int64_t position = 0; position < settings.sequence; ++position) {
      samples.tokens.push_back(token);
      samples.targets.push_back(token = next());
    }
  }
  return samples;
}

}  // namespace crossmesh::grid_training

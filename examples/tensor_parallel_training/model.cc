#include "examples/tensor_parallel_training/model.h"

#include <cmath>

#include <absl/strings/str_cat.h>

namespace crossmesh::grid_training {
namespace {

// Of a block, what its backward pass needs.
template <typename Number>
struct KeptOfBlock {
  Normed<Number> attention_norm, mlp_norm;
  MatrixOf<Number> qkv_input, qkv, attention, mlp_input, inner, activated;
};

template <typename Number>
class WholeModel {
 public:
  WholeModel(const TrainingSettings& settings, const TensorsOf<Number>& parameters,
             TensorsOf<Number>& gradients)
      : settings_(settings),
        samples_(SamplesOf(settings)),
        parameters_(parameters),
        gradients_(gradients),
        attention_{.sequence = settings.sequence, .head_width = settings.model.head_width} {}

  double LossAndGradients() {
    MatrixOf<Number> residual = Embed();
    std::vector<KeptOfBlock<Number>> blocks(settings_.model.layers);
    for (size_t layer = 0; layer < blocks.size(); ++layer) {
      Forward(absl::StrCat("layer", layer), blocks[layer], residual);
    }
    Normed<Number> normed;
    const MatrixOf<Number> input = Norm("logits", residual, normed);
    MatrixOf<Number> gradient = input * Of("logits");
    const double loss = LossOf(gradient);
    residual = NormBack("logits", ProductBack("logits", input, gradient), normed);
    for (size_t layer = blocks.size(); layer-- > 0;) {
      Backward(absl::StrCat("layer", layer), blocks[layer], residual);
    }
    EmbedBack(residual);
    return loss;
  }

 private:
  const MatrixOf<Number>& Of(absl::string_view name) const {
    return parameters_.find(name)->second;
  }

  MatrixOf<Number> Embed() const {
    MatrixOf<Number> residual(settings_.tokens(), settings_.model.hidden);
    for (Eigen::Index row = 0; row < residual.rows(); ++row) {
      residual.row(row) =
          Of("tokens").row(samples_.tokens[row]) + Of("positions").row(row % settings_.sequence);
    }
    return residual;
  }

  void EmbedBack(const MatrixOf<Number>& gradient) {
    for (const absl::string_view name : {"tokens", "positions"}) {
      gradients_[std::string(name)] = MatrixOf<Number>::Zero(Of(name).rows(), Of(name).cols());
    }
    for (Eigen::Index row = 0; row < gradient.rows(); ++row) {
      gradients_["tokens"].row(samples_.tokens[row]) += gradient.row(row);
      gradients_["positions"].row(row % settings_.sequence) += gradient.row(row);
    }
  }

  MatrixOf<Number> Norm(const std::string& name, const MatrixOf<Number>& input,
                        Normed<Number>& normed) const {
    normed = Normalize(input, NormSums(input), input.cols());
    return (normed.values.array().rowwise() * Of(name + ".norm_gain").row(0).array()).rowwise() +
           Of(name + ".norm_bias").row(0).array();
  }

  MatrixOf<Number> NormBack(const std::string& name, const MatrixOf<Number>& gradient,
                            const Normed<Number>& normed) {
    gradients_[name + ".norm_gain"] = gradient.cwiseProduct(normed.values).colwise().sum();
    gradients_[name + ".norm_bias"] = gradient.colwise().sum();
    const MatrixOf<Number> scaled =
        gradient.array().rowwise() * Of(name + ".norm_gain").row(0).array();
    return NormGradient(scaled, normed, NormGradientSums(scaled, normed), gradient.cols());
  }

  MatrixOf<Number> Product(const std::string& name, const MatrixOf<Number>& input) const {
    return (input * Of(name)).rowwise() + Of(name + ".bias").row(0);
  }

  // Of the input, from that of the output.
  MatrixOf<Number> ProductBack(const std::string& name, const MatrixOf<Number>& input,
                               const MatrixOf<Number>& gradient) {
    gradients_[name] = input.transpose() * gradient;
    if (parameters_.contains(name + ".bias")) gradients_[name + ".bias"] = gradient.colwise().sum();
    return gradient * Of(name).transpose();
  }

  void Forward(const std::string& layer, KeptOfBlock<Number>& kept,
               MatrixOf<Number>& residual) const {
    kept.qkv_input = Norm(layer + ".qkv", residual, kept.attention_norm);
    kept.qkv = Product(layer + ".qkv", kept.qkv_input);
    kept.attention = Attention(kept.qkv, attention_);
    residual += Product(layer + ".attention_out", kept.attention);
    kept.mlp_input = Norm(layer + ".mlp_in", residual, kept.mlp_norm);
    kept.inner = Product(layer + ".mlp_in", kept.mlp_input);
    kept.activated = Gelu(kept.inner);
    residual += Product(layer + ".mlp_out", kept.activated);
  }

  // `gradient` of the residual stream, after the block and then before it.
  void Backward(const std::string& layer, const KeptOfBlock<Number>& kept,
                MatrixOf<Number>& gradient) {
    const MatrixOf<Number> of_inner =
        GeluGradient(kept.inner, ProductBack(layer + ".mlp_out", kept.activated, gradient));
    gradient += NormBack(layer + ".mlp_in",
                         ProductBack(layer + ".mlp_in", kept.mlp_input, of_inner), kept.mlp_norm);
    const MatrixOf<Number> of_qkv = AttentionGradient(
        kept.qkv, ProductBack(layer + ".attention_out", kept.attention, gradient), attention_);
    gradient += NormBack(layer + ".qkv", ProductBack(layer + ".qkv", kept.qkv_input, of_qkv),
                         kept.attention_norm);
  }

  // Makes logits their gradient.
  double LossOf(MatrixOf<Number>& logits) const {
    double loss = 0;
    for (Eigen::Index row = 0; row < logits.rows(); ++row) {
      const Number greatest = logits.row(row).maxCoeff();
      const Number target = logits(row, samples_.targets[row]);
      logits.row(row) = (logits.row(row).array() - greatest).exp().matrix().eval();
      const Number sum = logits.row(row).sum();
      loss += static_cast<double>(std::log(sum) + greatest - target);
      logits.row(row) /= sum;
      logits(row, samples_.targets[row]) -= 1;
    }
    logits /= static_cast<Number>(settings_.tokens());
    return loss / static_cast<double>(settings_.tokens());
  }

  const TrainingSettings& settings_;
  const Samples samples_;
  const TensorsOf<Number>& parameters_;
  TensorsOf<Number>& gradients_;
  const AttentionSizes attention_;
};

}  // namespace

template <typename Number>
double LossAndGradients(const TrainingSettings& settings, const TensorsOf<Number>& parameters,
                        TensorsOf<Number>& gradients) {
  return WholeModel<Number>(settings, parameters, gradients).LossAndGradients();
}

template <typename Number>
std::vector<double> TrainAlone(const TrainingSettings& settings, int steps) {
  TensorsOf<Number> parameters = CastTensors<Number>(InitialParameters(settings));
  TensorsOf<Number> gradients, first, second;
  for (const auto& [name, values] : parameters) {
    first[name] = second[name] = MatrixOf<Number>::Zero(values.rows(), values.cols());
  }
  std::vector<double> losses;
  for (int step = 0; step < steps; ++step) {
    losses.push_back(LossAndGradients(settings, parameters, gradients));
    for (auto& [name, values] : parameters) {
      if (settings.optimizer.is_adam) {
        DescendByAdam(settings.optimizer, step + 1, gradients[name],
                      AdamTensors<Number>{values, first[name], second[name]});
      } else {
        Descend(settings.optimizer, gradients[name], values);
      }
    }
  }
  return losses;
}

template double LossAndGradients(const TrainingSettings&, const TensorsOf<float>&,
                                 TensorsOf<float>&);
template double LossAndGradients(const TrainingSettings&, const TensorsOf<double>&,
                                 TensorsOf<double>&);
template std::vector<double> TrainAlone<float>(const TrainingSettings&, int);
template std::vector<double> TrainAlone<double>(const TrainingSettings&, int);

}  // namespace crossmesh::grid_training

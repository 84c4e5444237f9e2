#include "tests/benchmark/models.h"

#include "common/base/check.h"

#include <string>
#include <utility>
#include <vector>

#include <absl/status/statusor.h>
#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

constexpr int64_t kHidden = 4096;
constexpr int64_t kLayers = 94;
constexpr int64_t kVocabulary = 151936;
constexpr int64_t kQueries = int64_t{64} * 128;  // heads times their size
constexpr int64_t kKeys = int64_t{4} * 128;
constexpr int64_t kHeadSize = 128;
constexpr int64_t kExperts = 128;
constexpr int64_t kExpertWidth = 1536;

TensorSpec Tensor(std::string name, DataType type, const std::vector<int64_t>& lengths) {
  absl::StatusOr<Shape> shape = Shape::Create(lengths);
  CHECK_OK(shape);
  return {.name = std::move(name), .type = type, .shape = *std::move(shape)};
}

Manifest Finished(std::vector<TensorSpec> tensors) {
  absl::StatusOr<Manifest> manifest = Manifest::Create(std::move(tensors));
  CHECK_OK(manifest);
  return *std::move(manifest);
}

}  // namespace

Manifest Qwen3Manifest() {
  std::vector<TensorSpec> tensors;
  const auto add = [&](std::string name, const std::vector<int64_t>& lengths) {
    tensors.push_back(Tensor(std::move(name), DataType::kBF16, lengths));
  };
  add("model.embed_tokens.weight", {kVocabulary, kHidden});
  for (int64_t layer = 0; layer < kLayers; ++layer) {
    const std::string prefix = absl::StrCat("model.layers.", layer, ".");
    add(prefix + "input_layernorm.weight", {kHidden});
    add(prefix + "self_attn.q_proj.weight", {kQueries, kHidden});
    add(prefix + "self_attn.k_proj.weight", {kKeys, kHidden});
    add(prefix + "self_attn.v_proj.weight", {kKeys, kHidden});
    add(prefix + "self_attn.o_proj.weight", {kHidden, kQueries});
    add(prefix + "self_attn.q_norm.weight", {kHeadSize});
    add(prefix + "self_attn.k_norm.weight", {kHeadSize});
    add(prefix + "post_attention_layernorm.weight", {kHidden});
    add(prefix + "mlp.gate.weight", {kExperts, kHidden});
    for (int64_t expert = 0; expert < kExperts; ++expert) {
      const std::string of_expert = absl::StrCat(prefix, "mlp.experts.", expert, ".");
      add(of_expert + "gate_proj.weight", {kExpertWidth, kHidden});
      add(of_expert + "up_proj.weight", {kExpertWidth, kHidden});
      add(of_expert + "down_proj.weight", {kHidden, kExpertWidth});
    }
  }
  add("model.norm.weight", {kHidden});
  add("lm_head.weight", {kVocabulary, kHidden});
  return Finished(std::move(tensors));
}

Manifest OneMatrix(int64_t rows, int64_t columns) {
  return Finished({Tensor("tensor", DataType::kF32, {rows, columns})});
}

}  // namespace crossmesh

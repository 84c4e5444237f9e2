#include "planner/parallelism/transformer.h"

#include <utility>

#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

constexpr int64_t kCountMax = int64_t{1} << 24;

}  // namespace

Transformer PlainTransformer(std::string name, int64_t layers, int64_t hidden, int64_t heads) {
  return {.name = std::move(name),
          .layers = layers,
          .hidden = hidden,
          .heads = heads,
          .kv_heads = heads,
          .head_width = hidden / heads,
          .feed_forward = 4 * hidden};
}

absl::Status Validate(const Transformer& model) {
  const struct {
    absl::string_view name;
    int64_t count;
    int64_t least;
  } counts[] = {{"layers", model.layers, 1},
                {"hidden", model.hidden, 1},
                {"heads", model.heads, 1},
                {"kv_heads", model.kv_heads, 1},
                {"head_width", model.head_width, 1},
                {"feed_forward", model.feed_forward, 1},
                {"vocabulary", model.vocabulary, 0},
                {"experts", model.experts, 0},
                {"experts_per_token", model.experts_per_token, model.experts > 0 ? 1 : 0}};
  for (const auto& [name, count, least] : counts) {
    if (count >= least && count <= kCountMax) continue;
    return absl::InvalidArgumentError(absl::StrCat("model ", model.name, ": ", name, ": expected ",
                                                   least, " to ", kCountMax, ", found ", count));
  }
  if (model.heads % model.kv_heads != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("model ", model.name, ": heads: expected a multiple of the ", model.kv_heads,
                     " heads of keys and values, found ", model.heads));
  }
  if (model.experts_per_token > model.experts) {
    return absl::InvalidArgumentError(
        absl::StrCat("model ", model.name, ": experts_per_token: expected at most ", model.experts,
                     ", found ", model.experts_per_token));
  }
  return absl::OkStatus();
}

std::array<BlockMatrix, kBlockMatrices> MatricesOf(const Transformer& model) {
  const bool of_experts = model.experts > 0;
  return {
      {{.name = "qkv", .k = model.hidden, .n = model.query_width() + 2 * model.kv_width()},
       {.name = "attention_out", .k = model.query_width(), .n = model.hidden, .transposed = true},
       {.name = "mlp_in",
        .k = model.hidden,
        .n = model.feed_forward * (model.gated ? 2 : 1),
        .of_experts = of_experts},
       {.name = "mlp_out",
        .k = model.feed_forward,
        .n = model.hidden,
        .transposed = true,
        .of_experts = of_experts}}};
}

BlockVectors VectorsOf(const Transformer& model) {
  const auto [attention, mlp] = VectorsOfHalves(model);
  return {.of_c = attention.of_c + mlp.of_c, .of_r = attention.of_r + mlp.of_r};
}

std::array<BlockVectors, 2> VectorsOfHalves(const Transformer& model) {
  std::array<BlockVectors, 2> halves;
  const std::array<BlockMatrix, kBlockMatrices> matrices = MatricesOf(model);
  for (int i = 0; i < kBlockMatrices; ++i) {
    BlockVectors& vectors = halves[i / 2];
    if (!matrices[i].transposed) vectors.of_c += 2 * model.hidden;
    if (matrices[i].of_experts) continue;
    (matrices[i].transposed ? vectors.of_c : vectors.of_r) += matrices[i].n;
  }
  return halves;
}

int64_t BlockParameters(const Transformer& model) {
  int64_t parameters = 0;
  for (const BlockMatrix& matrix : MatricesOf(model)) {
    parameters += matrix.k * matrix.n * (matrix.of_experts ? model.experts : 1);
  }
  return parameters;
}

int64_t EmbeddingParameters(const Transformer& model) {
  return model.vocabulary * model.hidden * (model.tied ? 1 : 2);
}

int64_t Parameters(const Transformer& model) {
  return model.layers * BlockParameters(model) + EmbeddingParameters(model);
}

}  // namespace crossmesh

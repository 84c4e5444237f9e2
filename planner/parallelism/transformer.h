#pragma once

#include <array>
#include <cstdint>
#include <string>

#include <absl/status/status.h>
#include <absl/strings/string_view.h>

namespace crossmesh {

// The sizes of a transformer of equal blocks.
struct Transformer {
  std::string name;
  int64_t layers = 0;  // blocks
  int64_t hidden = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;  // that share keys and values, a group of heads to each
  int64_t head_width = 0;
  int64_t feed_forward = 0;  // inner width, of one expert where there are experts
  bool gated = false;        // two matrices into the inner width, one of which gates the other
  int64_t vocabulary = 0;    // 0: embedding and logits are left out
  bool tied = true;          // embedding and logits are one matrix
  int64_t experts = 0;       // of a block; 0: the block is dense
  int64_t experts_per_token = 0;

  int64_t query_width() const { return heads * head_width; }
  int64_t kv_width() const { return kv_heads * head_width; }

  friend bool operator==(const Transformer&, const Transformer&) = default;
};

// A transformer whose heads share nothing and whose inner width is 4 h: 12 L h^2 parameters.
Transformer PlainTransformer(std::string name, int64_t layers, int64_t hidden, int64_t heads);

// InvalidArgument, naming the count: one below its least or above 2^24; heads that are not in whole
// groups; more experts for a token than there are.
absl::Status Validate(const Transformer& model);

// A matrix of a block: k rows, n columns.
struct BlockMatrix {
  absl::string_view name;
  int64_t k = 0;
  int64_t n = 0;
  bool transposed = false;  // its layer swaps c and r
  bool of_experts = false;  // every expert has one

  friend bool operator==(const BlockMatrix&, const BlockMatrix&) = default;
};
inline constexpr int kBlockMatrices = 4;

inline constexpr int kFirstExpertMatrix = 2;  // it and those after it are of experts, if any are

// qkv, attention_out, mlp_in, mlp_out: normal and transposed layers in turn.
std::array<BlockMatrix, kBlockMatrices> MatricesOf(const Transformer& model);

// Elements of the vectors of a block: two norms' gains and biases, and biases of transposed layers,
// which c cuts; biases of normal layers, which r cuts. Experts have none.
struct BlockVectors {
  int64_t of_c = 0;
  int64_t of_r = 0;
};
BlockVectors VectorsOf(const Transformer& model);
// The same of attention, and of the MLP.
std::array<BlockVectors, 2> VectorsOfHalves(const Transformer& model);

// Elements of the matrices of a block; all experts, or those that a device has.
int64_t BlockParameters(const Transformer& model);
// Of the embedding, and of the matrix of the logits where that is another one.
int64_t EmbeddingParameters(const Transformer& model);
int64_t Parameters(const Transformer& model);

}  // namespace crossmesh

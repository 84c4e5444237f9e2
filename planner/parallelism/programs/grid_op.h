#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>

namespace crossmesh {

// What a device of a grid does in an op of a training step. A pass goes matrix by matrix: of each
// one input, forward, and back output gradient, input gradient and weight gradient; the others are
// what stands between.
enum class GridOpKind : uint8_t {
  kSpreadVectors,  // once in a step: vectors of the diagonal are given, to be spread
  kTakeVectors,    // and are here
  kEmbed,          // tokens become activations, on the first stage
  kArrive,         // what the stage before has left is here
  kNorm,           // residual, and what the device's features add to the norm's sums
  kInput,          // what comes before the product: the norm, attention, the activation function
  kGive,           // this device's shard of the matrix is given, to be gathered
  kForward,        // the product
  kLeave,          // to the next stage
  kLoss,           // of logits: the greatest of each row
  kLossSum,        // and the sum of exponents, beside the logit of the target
  kBackward,       // the gradient of the logits
  kArriveBack,
  kOutputGradient,  // back through what follows the product
  kGiveBack,        // the shard is given once more
  kInputGradient,   // the product, and
  kWaitGradient,    // its sum, if nothing is to hide it
  kWeightGradient,  // the product
  kTake,            // this device's shard of the gradient is here
  kNormGradient,    // what the device's features add to the sums of the norm's gradient
  kLeaveBack,
  kEmbedGradient,
  kData,           // once in a step: the shard's gradient is given, to be summed over copies
  kUpdate,         // the matrix takes its gradient
  kVectors,        // norms, biases and the embedding are as kData
  kReduceVectors,  // gradients of vectors, scattered over z, go on to the diagonal
  kUpdateVectors,  // and kUpdate
};
// "embed", "norm", "weight_gradient", ...
absl::string_view GridOpKindName(GridOpKind kind);

// One op of a grid's step, which its name says all of: "m0.layer3.qkv.forward", "m0b.logits.input"
// of the second half of a batch that is cut in two, "layer3.qkv.update", "m1.embed", "vectors";
// "m0.stage2.layer3.qkv.forward" on a rank that has several stages.
struct GridOp {
  GridOpKind kind = GridOpKind::kForward;
  std::optional<int32_t> microbatch = std::nullopt;  // nothing: once in a step
  int32_t half = -1;                                 // 0 or 1; -1: of the whole microbatch
  std::optional<int32_t> stage = std::nullopt;       // nothing: the rank has one
  std::optional<int64_t> layer = std::nullopt;       // of all layers; nothing: none's
  std::string matrix = {};  // "qkv", "attention_out", "mlp_in", "mlp_out", "logits"; may be empty

  friend bool operator==(const GridOp&, const GridOp&) = default;
};

std::string ToString(const GridOp& op);
// The layer that it is of, "layer3" or "logits"; empty: none, as of embeddings and vectors.
std::string LayerNameOf(const GridOp& op);
// InvalidArgument, with the text, when it is no such name.
absl::StatusOr<GridOp> ParseGridOp(absl::string_view name);

}  // namespace crossmesh

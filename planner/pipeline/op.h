#pragma once

#include <compare>
#include <cstdint>
#include <ostream>
#include <string>

#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>

namespace crossmesh {

using StageIndex = int32_t;       // of a pipeline
using MicrobatchIndex = int32_t;  // of an iteration
using RankIndex = int32_t;        // computes the ops of its stages, one at a time

// What an op computes for a stage and a microbatch. The backward pass is one op, or two: the
// gradient of the input, which the stage before waits for, and that of the weights, which no op
// waits for.
enum class OpKind : uint8_t { kForward, kBackward, kInputGradient, kWeightGradient };

// Whether schedules have backward ops, or gradients one by one.
enum class BackwardForm : uint8_t { kFull, kSplit };

// Does it give the stages before what they wait for?
constexpr bool GivesInputGradient(OpKind kind) {
  return kind == OpKind::kBackward || kind == OpKind::kInputGradient;
}

struct Op {
  OpKind kind = OpKind::kForward;
  StageIndex stage = 0;
  MicrobatchIndex microbatch = 0;
  // Of a forward op: fused with the backward op right after it on its rank. They are computed as
  // one: both begin when the inputs of both are there, and end at once.
  bool is_fused = false;

  friend auto operator<=>(const Op&, const Op&) = default;
};

// The op by itself: what is said of it, not of its place in an order.
inline Op Unfused(Op op) {
  op.is_fused = false;
  return op;
}

// Stage, letter, microbatch, as PyTorch writes them: "3F7" forward, "3B7" backward, "3I7" gradient
// of the input, "3W7" of the weights; "3F7&" forward, fused with the op after it.
std::string ToString(const Op& op);
// InvalidArgument, naming the text, when it is not such a text as a whole.
absl::StatusOr<Op> ParseOp(absl::string_view text);
inline std::ostream& operator<<(std::ostream& out, const Op& op) { return out << ToString(op); }

}  // namespace crossmesh

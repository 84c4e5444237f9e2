#include "planner/parallelism/programs/grid_op.h"

#include <array>
#include <utility>
#include <vector>

#include <absl/status/status.h>
#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_split.h>
#include <absl/strings/strip.h>

namespace crossmesh {
namespace {

// In the order of GridOpKind.
constexpr std::array<absl::string_view, 27> kKindNames = {
    "spread_vectors", "take_vectors",
    "embed",          "arrive",
    "norm",           "input",
    "give",           "forward",
    "leave",          "loss",
    "loss_sum",       "backward",
    "arrive_back",    "output_gradient",
    "give_back",      "input_gradient",
    "wait_gradient",  "weight_gradient",
    "take",           "norm_gradient",
    "leave_back",     "embed_gradient",
    "data",           "update",
    "vectors",        "reduce_vectors",
    "update_vectors",
};

constexpr std::array<absl::string_view, 5> kMatrixNames = {"qkv", "attention_out", "mlp_in",
                                                           "mlp_out", "logits"};

std::optional<GridOpKind> KindNamed(absl::string_view name) {
  for (size_t kind = 0; kind < kKindNames.size(); ++kind) {
    if (kKindNames[kind] == name) return static_cast<GridOpKind>(kind);
  }
  return std::nullopt;
}

// "m3", "m3b".
bool ParsePass(absl::string_view text, GridOp& op) {
  if (!absl::ConsumePrefix(&text, "m")) return false;
  if (absl::ConsumeSuffix(&text, "a")) op.half = 0;
  if (op.half < 0 && absl::ConsumeSuffix(&text, "b")) op.half = 1;
  int32_t microbatch = 0;
  if (!absl::SimpleAtoi(text, &microbatch) || microbatch < 0) return false;
  op.microbatch = microbatch;
  return true;
}

// "layer3", of which `object` is the letters.
template <typename Number>
bool ParseNumbered(absl::string_view object, absl::string_view text, std::optional<Number>& found) {
  Number number = 0;
  if (!absl::ConsumePrefix(&text, object) || !absl::SimpleAtoi(text, &number) || number < 0) {
    return false;
  }
  found = number;
  return true;
}

bool IsMatrix(absl::string_view text) {
  for (const absl::string_view name : kMatrixNames) {
    if (name == text) return true;
  }
  return false;
}

}  // namespace

absl::string_view GridOpKindName(GridOpKind kind) { return kKindNames[static_cast<size_t>(kind)]; }

std::string ToString(const GridOp& op) {
  std::string name;
  if (op.microbatch.has_value()) {
    constexpr std::array<absl::string_view, 3> kHalves = {"", "a", "b"};
    absl::StrAppend(&name, "m", *op.microbatch, kHalves[op.half + 1], ".");
  }
  if (op.stage.has_value()) absl::StrAppend(&name, "stage", *op.stage, ".");
  if (op.layer.has_value()) absl::StrAppend(&name, "layer", *op.layer, ".");
  if (!op.matrix.empty()) absl::StrAppend(&name, op.matrix, ".");
  return absl::StrCat(name, GridOpKindName(op.kind));
}

std::string LayerNameOf(const GridOp& op) {
  return op.layer.has_value() ? absl::StrCat("layer", *op.layer) : op.matrix;
}

absl::StatusOr<GridOp> ParseGridOp(absl::string_view name) {
  const auto refused = [name] {
    return absl::InvalidArgumentError(absl::StrCat(
        "expected the name of an op of a grid's step, such as m0.layer3.qkv.forward, found \"",
        name, "\""));
  };
  std::vector<absl::string_view> parts = absl::StrSplit(name, '.');
  GridOp op;
  const std::optional<GridOpKind> kind = KindNamed(parts.back());
  if (!kind.has_value()) return refused();
  op.kind = *kind;
  parts.pop_back();
  size_t next = 0;
  if (next < parts.size() && ParsePass(parts[next], op)) ++next;
  if (next < parts.size() && ParseNumbered("stage", parts[next], op.stage)) ++next;
  if (next < parts.size() && ParseNumbered("layer", parts[next], op.layer)) ++next;
  if (next < parts.size() && IsMatrix(parts[next])) op.matrix = std::string(parts[next++]);
  // Numbers have one form, so that a name is as good as the op.
  if (next < parts.size() || ToString(op) != name) return refused();
  return op;
}

}  // namespace crossmesh

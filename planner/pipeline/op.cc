#include "planner/pipeline/op.h"

#include <limits>

#include <absl/status/status.h>
#include <absl/strings/ascii.h>
#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/strip.h>

namespace crossmesh {
namespace {

constexpr absl::string_view kLetters = "FBIW";  // by kind
constexpr absl::string_view kFused = "&";

// Digits only: SimpleAtoi takes signs and spaces. Below the greatest, so that counts fit as well.
bool ParseIndex(absl::string_view text, int32_t& index) {
  return !text.empty() && absl::ascii_isdigit(static_cast<unsigned char>(text[0])) &&
         absl::ascii_isdigit(static_cast<unsigned char>(text.back())) &&
         absl::SimpleAtoi(text, &index) && index < std::numeric_limits<int32_t>::max();
}

}  // namespace

std::string ToString(const Op& op) {
  return absl::StrCat(op.stage, kLetters.substr(static_cast<size_t>(op.kind), 1), op.microbatch,
                      op.is_fused ? kFused : "");
}

absl::StatusOr<Op> ParseOp(absl::string_view text) {
  absl::string_view left = text;
  Op op{.is_fused = absl::ConsumeSuffix(&left, kFused)};
  const size_t at = left.find_first_of(kLetters);
  if (at == absl::string_view::npos || !ParseIndex(left.substr(0, at), op.stage) ||
      !ParseIndex(left.substr(at + 1), op.microbatch)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "op \"", text, "\": expected a stage, one of F, B, I, W, and a microbatch, such as 3F7"));
  }
  op.kind = static_cast<OpKind>(kLetters.find(left[at]));
  return op;
}

}  // namespace crossmesh

#include "planner/redistribute/sub_axis.h"

#include <algorithm>
#include <utility>

#include <absl/status/status.h>
#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_split.h>
#include <absl/strings/strip.h>

namespace crossmesh {

std::string ToString(const SubAxis& sub_axis, std::span<const Axis> axes) {
  const Axis& axis = axes[sub_axis.axis];
  if (sub_axis.before == 1 && sub_axis.size == axis.size) return axis.name;
  return absl::StrCat(axis.name, ":(", sub_axis.before, ")", sub_axis.size);
}

absl::StatusOr<SubAxis> ParseSubAxis(absl::string_view text, std::span<const Axis> axes) {
  const std::pair<absl::string_view, absl::string_view> halves =
      absl::StrSplit(text, absl::MaxSplits(':', 1));
  const auto found = std::ranges::find(axes, halves.first, &Axis::name);
  if (found == axes.end()) {
    return absl::InvalidArgumentError(
        absl::StrCat("sub-axis '", text, "': expected one of the axes ", AxesToString(axes),
                     ", found '", halves.first, "'"));
  }
  SubAxis parsed{.axis = static_cast<int32_t>(found - axes.begin()), .size = found->size};
  if (halves.first.size() == text.size()) return parsed;
  absl::string_view rest = halves.second;
  const bool opened = absl::ConsumePrefix(&rest, "(");
  const std::pair<absl::string_view, absl::string_view> numbers = absl::StrSplit(rest, ')');
  if (!opened || !absl::SimpleAtoi(numbers.first, &parsed.before) ||
      !absl::SimpleAtoi(numbers.second, &parsed.size) || parsed.before < 1 || parsed.size < 1 ||
      parsed.before > found->size || found->size / parsed.before % parsed.size != 0 ||
      found->size % parsed.before != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("sub-axis '", text, "': expected axis:(before)size whose product divides ",
                     found->size, ", found '", halves.second, "'"));
  }
  return parsed;
}

std::vector<int64_t> PrimeFactors(int64_t n) {
  std::vector<int64_t> factors;
  for (int64_t prime = 2; n > 1; ++prime) {
    if (prime * prime > n) prime = n;
    for (; n % prime == 0; n /= prime) factors.push_back(prime);
  }
  return factors;
}

}  // namespace crossmesh

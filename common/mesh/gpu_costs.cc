#include "common/mesh/gpu_costs.h"

#include "common/base/status_macros.h"
#include "common/mesh/utf8.h"

#include <algorithm>

#include <absl/strings/ascii.h>
#include <absl/strings/escaping.h>
#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

constexpr size_t kSourceBytesMax = 200;

}  // namespace

absl::Status CheckSource(absl::string_view object, absl::string_view source) {
  const bool is_printable = std::ranges::none_of(
      source, [](char c) { return absl::ascii_iscntrl(static_cast<unsigned char>(c)); });
  if (!source.empty() && source.size() <= kSourceBytesMax && is_printable && IsValidUtf8(source)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(object, ": expected a source of 1 to ",
                                                 kSourceBytesMax, " printable bytes, found \"",
                                                 absl::CHexEscape(source.substr(0, 80)), "\""));
}

double GpuCosts::step_seconds() const {
  return static_cast<double>(2 * launch_ns.value + group_ns.value) * 1e-9;
}

absl::Status CheckCosts(const GpuCosts& costs) {
  for (const GpuCostField& field : kGpuCostFields) {
    const GpuCost& cost = costs.*field.cost;
    if (cost.value < 1 || cost.value > field.most) {
      return absl::InvalidArgumentError(absl::StrCat("network: expected gpu_costs.", field.name,
                                                     " of 1 to ", field.most, ", found ",
                                                     cost.value));
    }
    RETURN_IF_ERROR(CheckSource(absl::StrCat("network, gpu_costs.", field.name), cost.source));
  }
  return absl::OkStatus();
}

}  // namespace crossmesh

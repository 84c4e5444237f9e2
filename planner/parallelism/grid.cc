#include "planner/parallelism/grid.h"

#include <algorithm>
#include <vector>

#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>
#include <absl/strings/str_split.h>

namespace crossmesh {
namespace {

constexpr int64_t kAxisSizeMax = 65536;

constexpr std::array<absl::string_view, kGridAxisCount> kAxisNames = {
    "c", "r", "z", "context", "expert", "pipeline", "data"};

}  // namespace

absl::string_view GridAxisName(GridAxis axis) { return kAxisNames[static_cast<size_t>(axis)]; }

absl::StatusOr<GridAxis> ParseGridAxis(absl::string_view name) {
  const auto* const found = std::ranges::find(kAxisNames, name);
  if (found != kAxisNames.end()) return kGridAxes[found - kAxisNames.begin()];
  return absl::InvalidArgumentError(absl::StrCat(
      "axis: expected one of ", absl::StrJoin(kAxisNames, ", "), ", found \"", name, "\""));
}

absl::string_view ActivationFormName(ActivationForm form) {
  return form == ActivationForm::kReplicated ? "replicated" : "scattered";
}

absl::string_view VectorFormName(VectorForm form) {
  return form == VectorForm::kReplicated ? "replicated" : "diagonal";
}

int64_t Grid::devices() const {
  int64_t devices = 1;
  for (const int64_t size : sizes.values) devices *= size;
  return devices;
}

int Grid::axes_used() const {
  return static_cast<int>(std::ranges::count_if(sizes.values, [](int64_t s) { return s > 1; }));
}

PerAxis<int64_t> InnerSizes(const Grid& grid, const GridOrder& order) {
  PerAxis<int64_t> inner;
  int64_t product = 1;
  for (const GridAxis axis : order) {
    inner[axis] = product;
    product *= grid[axis];
  }
  return inner;
}

std::string ToString(const Grid& grid) {
  std::vector<std::string> parts;
  for (const GridAxis axis : kGridAxes) {
    if (grid[axis] > 1) parts.push_back(absl::StrCat(GridAxisName(axis), "=", grid[axis]));
  }
  return parts.empty() ? "c=1" : absl::StrJoin(parts, ",");
}

absl::StatusOr<Grid> ParseGrid(absl::string_view text) {
  Grid grid;
  PerAxis<bool> given;
  int64_t devices = 1;
  for (const absl::string_view part : absl::StrSplit(text, ',')) {
    const std::pair<absl::string_view, absl::string_view> sides =
        absl::StrSplit(part, absl::MaxSplits('=', 1));
    const absl::StatusOr<GridAxis> axis = ParseGridAxis(sides.first);
    int64_t size = 0;
    if (!axis.ok() || !absl::SimpleAtoi(sides.second, &size) || size < 1 || size > kAxisSizeMax) {
      return absl::InvalidArgumentError(absl::StrCat(
          "grid: expected axes as in \"r=4,z=8,data=2\", each ", absl::StrJoin(kAxisNames, ", "),
          " with a size of 1 to ", kAxisSizeMax, ", found \"", part, "\""));
    }
    if (given[*axis]) {
      return absl::InvalidArgumentError(
          absl::StrCat("grid: expected each axis once, found ", sides.first, " again"));
    }
    given[*axis] = true;
    grid[*axis] = size;
    devices *= size;
    if (devices > kAxisSizeMax) {
      return absl::InvalidArgumentError(
          absl::StrCat("grid: expected at most ", kAxisSizeMax, " devices, found ", text));
    }
  }
  return grid;
}

absl::StatusOr<GridOrder> ParseGridOrder(absl::string_view text) {
  const std::vector<absl::string_view> names = absl::StrSplit(text, ',');
  GridOrder order = kGridOrder;
  PerAxis<bool> given;
  bool valid = names.size() == kGridAxisCount;
  for (size_t i = 0; valid && i < names.size(); ++i) {
    const absl::StatusOr<GridAxis> axis = ParseGridAxis(names[i]);
    valid = axis.ok() && !given[*axis];
    if (!valid) break;
    given[*axis] = true;
    order[i] = *axis;
  }
  if (valid) return order;
  return absl::InvalidArgumentError(absl::StrCat(
      "order of axes: expected each of ", ToString(kGridOrder), " once, found \"", text, "\""));
}

std::string ToString(const GridOrder& order) {
  return absl::StrJoin(order, ",", [](std::string* out, GridAxis axis) {
    absl::StrAppend(out, GridAxisName(axis));
  });
}

}  // namespace crossmesh

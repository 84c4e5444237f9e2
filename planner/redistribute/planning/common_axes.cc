#include "planner/redistribute/planning/common_axes.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>

#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

// Devices between neighbours on each axis, and all of them: descending.
std::vector<int64_t> Strides(const Mesh& mesh) {
  std::vector<int64_t> strides = {mesh.slots()};
  for (const Axis& axis : mesh.axes()) strides.push_back(strides.back() / axis.size);
  return strides;
}

std::vector<std::vector<SubAxis>> PartsOf(const Mesh& mesh, const std::vector<int64_t>& strides) {
  std::vector<std::vector<SubAxis>> parts;
  const std::vector<int64_t> of_mesh = Strides(mesh);
  for (size_t axis = 0; axis + 1 < of_mesh.size(); ++axis) {
    std::vector<SubAxis>& of_axis = parts.emplace_back();
    for (size_t i = 0; i + 1 < strides.size(); ++i) {
      if (strides[i] > of_mesh[axis] || strides[i + 1] < of_mesh[axis + 1]) continue;
      of_axis.push_back({.axis = static_cast<int32_t>(i), .size = strides[i] / strides[i + 1]});
    }
  }
  return parts;
}

// The axis that is just the devices between two strides; null: none.
const Axis* AxisBetween(const Mesh& mesh, int64_t major, int64_t minor) {
  const std::vector<int64_t> strides = Strides(mesh);
  for (size_t axis = 0; axis + 1 < strides.size(); ++axis) {
    if (strides[axis] == major && strides[axis + 1] == minor) return &mesh.axes()[axis];
  }
  return nullptr;
}

bool HasAxis(const Mesh& mesh, const std::string& name) {
  return std::ranges::find(mesh.axes(), name, &Axis::name) != mesh.axes().end();
}

// That of the source's axis, or of the destination's, where it is one as a whole.
std::string NameBetween(const Mesh& source, const Mesh& destination, int64_t major, int64_t minor) {
  if (const Axis* const axis = AxisBetween(source, major, minor)) return axis->name;
  const Axis* const axis = AxisBetween(destination, major, minor);
  if (axis != nullptr && !HasAxis(source, axis->name)) return axis->name;
  std::string name = absl::StrCat("d", minor);
  while (HasAxis(source, name) || HasAxis(destination, name)) name += '_';
  return name;
}

}  // namespace

std::optional<CommonAxes> FindCommonAxes(const Mesh& source, const Mesh& destination) {
  if (source.devices() != destination.devices()) return std::nullopt;
  std::vector<int64_t> strides = Strides(source);
  for (const int64_t stride : Strides(destination)) strides.push_back(stride);
  std::ranges::sort(strides, std::ranges::greater());
  strides.erase(std::ranges::unique(strides).begin(), strides.end());
  CommonAxes common;
  for (size_t i = 0; i + 1 < strides.size(); ++i) {
    if (strides[i] % strides[i + 1] != 0) return std::nullopt;
    common.axes.push_back({.name = NameBetween(source, destination, strides[i], strides[i + 1]),
                           .size = strides[i] / strides[i + 1]});
  }
  common.of_source = PartsOf(source, strides);
  common.of_destination = PartsOf(destination, strides);
  return common;
}

}  // namespace crossmesh

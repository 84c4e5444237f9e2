#include "common/mesh/mesh.h"

#include "common/base/check.h"
#include "common/base/checked_math.h"
#include "common/base/status_macros.h"
#include "common/mesh/text_scanner.h"

#include <algorithm>

#include <absl/container/flat_hash_map.h>
#include <absl/strings/escaping.h>
#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

absl::Status CheckAxes(std::span<const Axis> axes) {
  if (axes.size() > Mesh::kAxesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("mesh: expected at most ", Mesh::kAxesMax, " axes, found ", axes.size()));
  }
  for (size_t i = 0; i < axes.size(); ++i) {
    if (!IsAxisName(axes[i].name)) {
      return absl::InvalidArgumentError(
          absl::StrCat("mesh: expected an axis name of the form [a-z][a-z0-9_]{0,31}, found \"",
                       absl::CHexEscape(axes[i].name.substr(0, 80)), "\""));
    }
    if (axes[i].size < 1) {
      return absl::InvalidArgumentError(absl::StrCat("mesh ", AxesToString(axes),
                                                     ": expected a size of at least 1 for axis ",
                                                     axes[i].name, ", found ", axes[i].size));
    }
    for (size_t j = 0; j < i; ++j) {
      if (axes[i].name != axes[j].name) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("mesh ", AxesToString(axes), ": axis ", axes[i].name, " is named twice"));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckSlots(std::span<const Axis> axes, size_t devices) {
  std::optional<int64_t> slots = 1;
  for (const Axis& axis : axes) {
    if (slots) slots = CheckedMultiply(*slots, axis.size);
  }
  if (!slots || *slots > Mesh::kSlotsMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("mesh ", AxesToString(axes), ": expected at most ", Mesh::kSlotsMax,
                     " slots, found ", slots ? absl::StrCat(*slots) : "more than 2^63"));
  }
  if (static_cast<size_t>(*slots) != devices) {
    return absl::InvalidArgumentError(absl::StrCat("mesh ", AxesToString(axes), ": expected ",
                                                   *slots, " devices, one per slot, found ",
                                                   devices));
  }
  return absl::OkStatus();
}

absl::Status CheckDevices(std::span<const Axis> axes, std::span<const DeviceId> devices) {
  absl::flat_hash_map<std::pair<absl::string_view, int32_t>, size_t> slot_of;
  slot_of.reserve(devices.size());
  for (size_t slot = 0; slot < devices.size(); ++slot) {
    RETURN_IF_ERROR(Validate(devices[slot]));
    const auto [found, inserted] =
        slot_of.try_emplace({devices[slot].host, devices[slot].index}, slot);
    if (!inserted) {
      return absl::InvalidArgumentError(absl::StrCat("mesh ", AxesToString(axes), ": device ",
                                                     ToString(devices[slot]), " is in slots ",
                                                     found->second, " and ", slot));
    }
  }
  return absl::OkStatus();
}

}  // namespace

Mesh::Mesh(std::vector<Axis> axes, std::vector<DeviceId> devices)
    : axes_(std::move(axes)), strides_(axes_.size()), devices_(std::move(devices)) {
  // Slots are in row-major order: the last axis is the fastest.
  int64_t stride = 1;
  for (size_t i = axes_.size(); i-- > 0;) {
    strides_[i] = stride;
    stride *= axes_[i].size;
  }
}

absl::StatusOr<Mesh> Mesh::Create(std::vector<Axis> axes, std::vector<DeviceId> devices) {
  RETURN_IF_ERROR(CheckAxes(axes));
  RETURN_IF_ERROR(CheckSlots(axes, devices.size()));
  RETURN_IF_ERROR(CheckDevices(axes, devices));
  return Mesh(std::move(axes), std::move(devices));
}

std::optional<int> Mesh::FindAxis(absl::string_view name) const {
  for (int i = 0; i < rank(); ++i) {
    if (axes_[i].name == name) return i;
  }
  return std::nullopt;
}

int64_t Mesh::Coordinate(int64_t slot, int axis) const {
  CHECK(slot >= 0 && slot < slots()) << "slot " << slot << " of " << slots();
  CHECK(axis >= 0 && axis < rank()) << "axis " << axis << " of " << rank();
  return slot / strides_[axis] % axes_[axis].size;
}

absl::StatusOr<Mesh> Mesh::Select(
    std::span<const std::pair<std::string, int64_t>> coordinates) const {
  std::vector<std::optional<int64_t>> fixed(axes_.size());
  for (const auto& [name, coordinate] : coordinates) {
    const std::optional<int> axis = FindAxis(name);
    if (!axis) {
      return absl::InvalidArgumentError(absl::StrCat("coordinate ", name, "=", coordinate,
                                                     ": mesh ", AxesToString(axes_),
                                                     " has no axis ", name));
    }
    if (fixed[*axis]) {
      return absl::InvalidArgumentError(absl::StrCat(
          "coordinates ", CoordinatesToString(coordinates), ": axis ", name, " is given twice"));
    }
    if (coordinate < 0 || coordinate >= axes_[*axis].size) {
      return absl::InvalidArgumentError(absl::StrCat("coordinate ", name, "=", coordinate,
                                                     ": expected 0 to ", axes_[*axis].size - 1,
                                                     " on mesh ", AxesToString(axes_)));
    }
    fixed[*axis] = coordinate;
  }

  std::vector<Axis> axes;
  for (int i = 0; i < rank(); ++i) {
    if (!fixed[i]) axes.push_back(axes_[i]);
  }
  std::vector<DeviceId> devices;
  for (int64_t slot = 0; slot < slots(); ++slot) {
    bool selected = true;
    for (int i = 0; i < rank() && selected; ++i) {
      selected = !fixed[i] || Coordinate(slot, i) == *fixed[i];
    }
    if (selected) devices.push_back(devices_[slot]);
  }
  return Mesh(std::move(axes), std::move(devices));
}

}  // namespace crossmesh

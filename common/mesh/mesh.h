#pragma once

#include "common/mesh/device.h"

#include <cstdint>
#include <optional>
#include <ostream>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>

namespace crossmesh {

struct Axis {
  std::string name;  // [a-z][a-z0-9_]{0,31}
  int64_t size = 1;  // >= 1
  friend bool operator==(const Axis&, const Axis&) = default;
};

// Named axes over an ordered list of slots, each bound to a device. Slots are numbered row-major,
// the last axis running fastest. Immutable.
//
// Example: "data=2,model=2 on a.0-1,b.0-1" has slot 2 = (data 1, model 0) on device b.0.
class Mesh {
 public:
  static constexpr int64_t kSlotsMax = 65536;
  static constexpr int kAxesMax = 32;

  Mesh() = default;  // no axes, no slots: only a placeholder to assign to

  // `devices` in slot order, as many as the product of the axis sizes. InvalidArgument: an axis
  // misnamed, named twice or of size < 1, too many axes or slots, another count of devices, a
  // device out of range or in two slots. Cost: linear in the slots.
  static absl::StatusOr<Mesh> Create(std::vector<Axis> axes, std::vector<DeviceId> devices);

  const std::vector<Axis>& axes() const { return axes_; }
  const std::vector<DeviceId>& devices() const { return devices_; }
  int rank() const { return static_cast<int>(axes_.size()); }
  int64_t slots() const { return static_cast<int64_t>(devices_.size()); }

  // Nothing when the mesh has no axis of that name.
  std::optional<int> FindAxis(absl::string_view name) const;
  // Coordinate of a slot on an axis.
  int64_t Coordinate(int64_t slot, int axis) const;

  // The sub-mesh at fixed coordinates of some axes, e.g. {{"stage", 1}}; these axes go away.
  // InvalidArgument: unknown or repeated axis, coordinate out of range.
  absl::StatusOr<Mesh> Select(std::span<const std::pair<std::string, int64_t>> coordinates) const;

  friend bool operator==(const Mesh&, const Mesh&) = default;

 private:
  Mesh(std::vector<Axis> axes, std::vector<DeviceId> devices);

  std::vector<Axis> axes_;
  std::vector<int64_t> strides_;  // slots between neighbours on each axis
  std::vector<DeviceId> devices_;
};

// Coordinates for Mesh::Select.
using Coordinates = std::vector<std::pair<std::string, int64_t>>;

// The text forms of docs/text-forms.md, which has the grammar:
//   axes     "data=4,model=2"       ("" for a mesh of one slot and no axis)
//   devices  "a.0-3,b.0-3"          (runs of indices of one host are joined)
//   mesh     "data=4,model=2 on a.0-3,b.0-3"
//   coordinates "stage=1,expert=3"
std::string ToString(const Mesh& mesh);
std::string AxesToString(std::span<const Axis> axes);
std::string DevicesToString(std::span<const DeviceId> devices);
absl::StatusOr<Mesh> ParseMesh(absl::string_view text);
absl::StatusOr<std::vector<Axis>> ParseAxes(absl::string_view text);
absl::StatusOr<std::vector<DeviceId>> ParseDevices(absl::string_view text);
std::string CoordinatesToString(std::span<const std::pair<std::string, int64_t>> coordinates);
absl::StatusOr<Coordinates> ParseCoordinates(absl::string_view text);
inline std::ostream& operator<<(std::ostream& out, const Mesh& m) { return out << ToString(m); }

}  // namespace crossmesh

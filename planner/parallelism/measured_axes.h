#pragma once

#include "common/mesh/device.h"
#include "crossmesh/v1/measured_axes.pb.h"
#include "planner/parallelism/axis_rates.h"
#include "planner/parallelism/network_rates.h"

#include <string>
#include <utility>
#include <vector>

#include <absl/status/statusor.h>

namespace crossmesh {

// What was measured of axes over some devices, in this order. Positions ascend, and are such as an
// axis over so many devices may have. An immutable value.
class MeasuredAxes {
 public:
  // InvalidArgument: fewer than two devices, or one twice; no position; what WithMeasured refuses.
  static absl::StatusOr<MeasuredAxes> Create(std::vector<DeviceId> devices,
                                             std::vector<MeasuredPosition> positions);

  const std::vector<DeviceId>& devices() const { return devices_; }
  const std::vector<MeasuredPosition>& positions() const { return positions_; }
  // With these in the place of those of the same positions.
  absl::StatusOr<MeasuredAxes> With(const std::vector<MeasuredPosition>& newer) const;

  friend bool operator==(const MeasuredAxes&, const MeasuredAxes&) = default;

 private:
  MeasuredAxes(std::vector<DeviceId> devices, std::vector<MeasuredPosition> positions)
      : devices_(std::move(devices)), positions_(std::move(positions)) {}

  std::vector<DeviceId> devices_;
  std::vector<MeasuredPosition> positions_;
};

v1::MeasuredAxes ToProto(const MeasuredAxes& axes);
// InvalidArgument: devices that do not parse; a rate or a time out of range; what Create refuses.
absl::StatusOr<MeasuredAxes> FromProto(const v1::MeasuredAxes& proto);

// The file that ParseMeasuredPositions reads.
std::string ToRatesFile(const MeasuredAxes& axes);

}  // namespace crossmesh

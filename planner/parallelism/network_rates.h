#pragma once

#include "common/mesh/device.h"
#include "common/mesh/topology.h"
#include "planner/parallelism/axis_rates.h"

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>

namespace crossmesh {

// What somebody measured of a position, with all groups beside it at work.
struct MeasuredPosition {
  AxisPosition position;
  double seconds_per_message = 0;
  double bytes_per_second = 0;

  friend bool operator==(const MeasuredPosition&, const MeasuredPosition&) = default;
};

// Reads a file of them: {"positions": [{"inner": 8, "own": 4, "bytes_per_second": 12000000000,
// "message_ns": 2000}, ...]}; message_ns may be missing. InvalidArgument names the entry.
absl::StatusOr<std::vector<MeasuredPosition>> ParseMeasuredPositions(absl::string_view what,
                                                                     absl::string_view text);

// InvalidArgument: a position that no axis of so many devices has, or twice; a rate that is not
// above 0, or a time below it.
absl::Status CheckMeasured(int64_t devices, std::span<const MeasuredPosition> measured);

// The rates of axes over these devices, the first one neighbour of the second, by the network's
// description. A group is cut where it leaves a host, and where it leaves a rack: inside hosts it
// has the links, outside each device has its part of the NICs that it shares, and of the uplink.
// The slowest device counts. What costs a step and a message are as CostOfMesh has them.
//
// A position that was measured has what was measured, as one ring. InvalidArgument: no devices, or
// one twice; a position that no axis of so many devices has, or twice; a rate that is not above 0.
// Cost: positions, times the devices.
absl::StatusOr<PositionRates> RatesOfNetwork(std::span<const DeviceId> devices,
                                             const Topology& topology,
                                             std::span<const MeasuredPosition> measured = {});

// The same rates with those of measured positions in their place.
absl::StatusOr<PositionRates> WithMeasured(const PositionRates& rates,
                                           std::span<const MeasuredPosition> measured);

}  // namespace crossmesh

#include "planner/parallelism/measured_axes.h"

#include "common/base/error_place.h"
#include "common/base/status_macros.h"
#include "common/mesh/mesh.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <set>
#include <utility>

#include <absl/status/status.h>
#include <absl/strings/str_cat.h>
#include <nlohmann/json.hpp>

namespace crossmesh {
namespace {

constexpr int64_t kBytesPerSecondMax = int64_t{1} << 50;
constexpr int64_t kMessageNsMax = 1'000'000'000;

int64_t BytesPerSecond(const MeasuredPosition& position) {
  return std::clamp<int64_t>(std::llround(std::min(position.bytes_per_second, 0x1p60)), 1,
                             kBytesPerSecondMax);
}

int64_t MessageNs(const MeasuredPosition& position) {
  return std::llround(std::min(position.seconds_per_message, 1.0) * 1e9);
}

absl::Status CheckRange(const std::string& what, int64_t value, int64_t least, int64_t most) {
  if (value >= least && value <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(what, ": expected from ", least, " to ", most, ", found ", value));
}

}  // namespace

absl::StatusOr<MeasuredAxes> MeasuredAxes::Create(std::vector<DeviceId> devices,
                                                  std::vector<MeasuredPosition> positions) {
  if (devices.size() < 2 || positions.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("measured axes: expected at least two devices and a position, found ",
                     devices.size(), " and ", positions.size()));
  }
  const std::set<DeviceId> distinct(devices.begin(), devices.end());
  if (distinct.size() != devices.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("measured axes: expected each device once, found ", DevicesToString(devices)));
  }
  std::ranges::sort(positions, {}, &MeasuredPosition::position);
  RETURN_IF_ERROR(CheckMeasured(std::ssize(devices), positions));
  return MeasuredAxes(std::move(devices), std::move(positions));
}

absl::StatusOr<MeasuredAxes> MeasuredAxes::With(const std::vector<MeasuredPosition>& newer) const {
  std::vector<MeasuredPosition> positions = newer;
  for (const MeasuredPosition& known : positions_) {
    const auto found = std::ranges::find(newer, known.position, &MeasuredPosition::position);
    if (found == newer.end()) positions.push_back(known);
  }
  return Create(devices_, std::move(positions));
}

v1::MeasuredAxes ToProto(const MeasuredAxes& axes) {
  v1::MeasuredAxes proto;
  proto.set_devices(DevicesToString(axes.devices()));
  for (const MeasuredPosition& position : axes.positions()) {
    v1::MeasuredAxes::Position& added = *proto.add_positions();
    added.set_inner(position.position.inner);
    added.set_own(position.position.own);
    added.set_bytes_per_second(BytesPerSecond(position));
    added.set_message_ns(MessageNs(position));
  }
  return proto;
}

absl::StatusOr<MeasuredAxes> FromProto(const v1::MeasuredAxes& proto) {
  ASSIGN_OR_RETURN(std::vector<DeviceId> devices, At("devices", ParseDevices(proto.devices())));
  std::vector<MeasuredPosition> positions;
  for (const v1::MeasuredAxes::Position& position : proto.positions()) {
    const std::string where =
        absl::StrCat("measured position inner ", position.inner(), ", own ", position.own(), ": ");
    RETURN_IF_ERROR(
        CheckRange(where + "bytes per second", position.bytes_per_second(), 1, kBytesPerSecondMax));
    RETURN_IF_ERROR(CheckRange(where + "ns of a message", position.message_ns(), 0, kMessageNsMax));
    positions.push_back({.position = {position.inner(), position.own()},
                         .seconds_per_message = static_cast<double>(position.message_ns()) / 1e9,
                         .bytes_per_second = static_cast<double>(position.bytes_per_second())});
  }
  return MeasuredAxes::Create(std::move(devices), std::move(positions));
}

std::string ToRatesFile(const MeasuredAxes& axes) {
  nlohmann::json file = {{"positions", nlohmann::json::array()}};
  for (const MeasuredPosition& position : axes.positions()) {
    file["positions"].push_back({{"inner", position.position.inner},
                                 {"own", position.position.own},
                                 {"bytes_per_second", BytesPerSecond(position)},
                                 {"message_ns", MessageNs(position)}});
  }
  return file.dump(2) + "\n";
}

}  // namespace crossmesh

#include "planner/parallelism/network_rates.h"

#include "common/base/status_macros.h"
#include "common/mesh/json_reader.h"
#include "planner/network/slowest_rates.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include <absl/strings/str_cat.h>
#include <nlohmann/json.hpp>

namespace crossmesh {
namespace {

// The slowest device's part of what devices share, at each level.
class DeviceRates {
 public:
  DeviceRates(std::span<const DeviceId> devices, const Topology& topology)
      : topology_(topology), slowest_(SlowestRatesOf(devices, topology)) {
    std::map<std::string, int32_t> hosts;
    for (const DeviceId& device : devices) {
      host_of_.push_back(
          hosts.try_emplace(device.host, static_cast<int32_t>(hosts.size())).first->second);
      const std::optional<int> rack = topology.RackOf(device.host);
      // A host outside of racks is one by itself.
      rack_of_.push_back(rack ? *rack
                              : static_cast<int32_t>(topology.racks().size()) + host_of_.back());
      if (rack) ++in_rack_[*rack];
    }
    for (const auto& [rack, count] : in_rack_) {
      const Rack& shared = topology.racks()[rack];
      uplink_ = std::min(
          uplink_, std::min(shared.up_bytes_per_second, shared.down_bytes_per_second) / count);
    }
  }

  std::span<const int32_t> host_of() const { return host_of_; }
  std::span<const int32_t> rack_of() const { return rack_of_; }
  bool has_racks() const { return !topology_.racks().empty(); }
  double step_seconds() const { return slowest_.step_seconds; }
  RateLevel InHost() const { return {1, slowest_.message_seconds, Rate(slowest_.inside)}; }
  RateLevel InRack() const { return {1, BetweenHosts(), Rate(slowest_.nic)}; }
  RateLevel Beyond() const { return {1, BetweenHosts(), Rate(std::min(slowest_.nic, uplink_))}; }

 private:
  static double Rate(int64_t rate) { return static_cast<double>(std::max<int64_t>(1, rate)); }
  double BetweenHosts() const { return slowest_.message_seconds + slowest_.latency_seconds; }

  const Topology& topology_;
  const SlowestRates slowest_;
  std::map<int, int64_t> in_rack_;
  std::vector<int32_t> host_of_;
  std::vector<int32_t> rack_of_;
  int64_t uplink_ = std::numeric_limits<int64_t>::max();
};

// Is every part of so many consecutive members of a group in one unit, wherever the group stands?
bool AreInside(std::span<const int32_t> unit_of, const AxisPosition& position, int64_t part) {
  const auto [inner, own] = position;
  for (int64_t slot = 0; slot < std::ssize(unit_of); ++slot) {
    const int64_t coordinate = slot / inner % own;
    if (unit_of[slot] != unit_of[slot - coordinate % part * inner]) return false;
  }
  return true;
}

// The largest such part that divides the group.
int64_t SizeInside(std::span<const int32_t> unit_of, const AxisPosition& position) {
  for (int64_t part = position.own; part > 1; --part) {
    if (position.own % part == 0 && AreInside(unit_of, position, part)) return part;
  }
  return 1;
}

}  // namespace

absl::Status CheckMeasured(int64_t devices, std::span<const MeasuredPosition> measured) {
  std::set<AxisPosition> seen;
  for (const MeasuredPosition& entry : measured) {
    const auto [inner, own] = entry.position;
    const std::string where = absl::StrCat("measured position inner ", inner, ", own ", own);
    if (inner < 1 || own < 2 || inner > devices || own > devices || devices % (inner * own) != 0) {
      return absl::InvalidArgumentError(absl::StrCat(where,
                                                     ": expected sizes whose product divides the ",
                                                     devices, " devices, the second at least 2"));
    }
    if (!seen.insert(entry.position).second) {
      return absl::InvalidArgumentError(absl::StrCat(where, ": expected it once, found it again"));
    }
    if (!std::isfinite(entry.bytes_per_second) || entry.bytes_per_second <= 0) {
      return absl::InvalidArgumentError(absl::StrCat(
          where, ": bytes per second: expected more than 0, found ", entry.bytes_per_second));
    }
    if (!std::isfinite(entry.seconds_per_message) || entry.seconds_per_message < 0) {
      return absl::InvalidArgumentError(absl::StrCat(
          where, ": seconds of a message: expected at least 0, found ", entry.seconds_per_message));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<MeasuredPosition>> ParseMeasuredPositions(absl::string_view what,
                                                                     absl::string_view text) {
  constexpr std::array<absl::string_view, 1> kFileKeys = {"positions"};
  constexpr std::array<absl::string_view, 4> kKeys = {"bytes_per_second", "inner", "message_ns",
                                                      "own"};
  ASSIGN_OR_RETURN(const nlohmann::json document, ParseJson(what, text));
  ASSIGN_OR_RETURN(const JsonFields file, JsonFields::Of(document, std::string(what), kFileKeys));
  ASSIGN_OR_RETURN(const nlohmann::json* const entries, file.Array("positions"));
  std::vector<MeasuredPosition> positions;
  for (const nlohmann::json& entry : *entries) {
    ASSIGN_OR_RETURN(
        const JsonFields fields,
        JsonFields::Of(entry, absl::StrCat(what, ": position ", positions.size()), kKeys));
    MeasuredPosition& position = positions.emplace_back();
    ASSIGN_OR_RETURN(position.position.inner, fields.Integer("inner"));
    ASSIGN_OR_RETURN(position.position.own, fields.Integer("own"));
    ASSIGN_OR_RETURN(const int64_t rate, fields.Integer("bytes_per_second"));
    position.bytes_per_second = static_cast<double>(rate);
    if (!fields.Has("message_ns")) continue;
    ASSIGN_OR_RETURN(const int64_t message_ns, fields.Integer("message_ns"));
    position.seconds_per_message = static_cast<double>(message_ns) / 1e9;
  }
  return positions;
}

absl::StatusOr<PositionRates> RatesOfNetwork(std::span<const DeviceId> devices,
                                             const Topology& topology,
                                             std::span<const MeasuredPosition> measured) {
  if (devices.empty()) {
    return absl::InvalidArgumentError("devices: expected at least one, found none");
  }
  std::set<std::pair<std::string, int32_t>> seen;
  for (const DeviceId& device : devices) {
    if (seen.emplace(device.host, device.index).second) continue;
    return absl::InvalidArgumentError(absl::StrCat("devices: expected each once, found ",
                                                   device.host, ".", device.index, " again"));
  }
  const DeviceRates rates(devices, topology);
  std::vector<PositionRates::Entry> entries;
  for (const AxisPosition& position : PositionRates::PositionsOf(std::ssize(devices))) {
    std::array<RateLevel, 3> levels = {rates.InHost(), rates.InRack(), rates.Beyond()};
    levels[0].size = SizeInside(rates.host_of(), position);
    const int64_t in_rack =
        rates.has_racks() ? SizeInside(rates.rack_of(), position) : position.own;
    // Racks are made of hosts, but what divides evenly in one need not in the other.
    levels[1].size = in_rack % levels[0].size == 0 ? in_rack / levels[0].size : 1;
    levels[2].size = position.own / (levels[0].size * levels[1].size);
    entries.push_back({position, AxisRate(levels, rates.step_seconds(), RateSource::kDescribed)});
  }
  ASSIGN_OR_RETURN(const PositionRates described,
                   PositionRates::Create(std::ssize(devices), entries));
  return WithMeasured(described, measured);
}

absl::StatusOr<PositionRates> WithMeasured(const PositionRates& rates,
                                           std::span<const MeasuredPosition> measured) {
  RETURN_IF_ERROR(CheckMeasured(rates.devices(), measured));
  std::vector<PositionRates::Entry> entries;
  for (const AxisPosition& position : PositionRates::PositionsOf(rates.devices())) {
    const auto found = std::ranges::find(measured, position, &MeasuredPosition::position);
    if (found == measured.end()) {
      entries.push_back({position, rates.At(position.inner, position.own)});
      continue;
    }
    const RateLevel level{position.own, found->seconds_per_message, found->bytes_per_second};
    entries.push_back({position, AxisRate(std::span(&level, 1), 0, RateSource::kMeasured)});
  }
  return PositionRates::Create(rates.devices(), entries);
}

}  // namespace crossmesh

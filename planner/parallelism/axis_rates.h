#pragma once

#include "planner/parallelism/ring_law.h"

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <absl/status/statusor.h>

namespace crossmesh {

// Where a rate comes from. Only what was measured is called so.
enum class RateSource : uint8_t {
  kMeasured,   // of this position, with all groups beside it at work
  kTable,      // published by others, for this position of such a machine
  kDescribed,  // from what the network's description says of NICs and links
  kTheory,     // from what vendors say, or assumed
};
// "measured", "table", "described", "theory".
absl::string_view RateSourceName(RateSource source);

// Members of a group that are neighbours over equal links.
struct RateLevel {
  int64_t size = 1;  // so many units of the level below
  double seconds_per_message = 0;
  double bytes_per_second = 1;
};

// What collectives cost over an axis of `own` devices, each `inner` slots from the next, while all
// groups beside it do the same. A group over several levels goes level by level, as the executor's
// steps do: a gather begins with the farthest, where the messages are smallest, and everything else
// is that backwards. A level is a ring of
//   seconds_per_step + (size - 1) * (seconds_per_message + bytes / bytes_per_second).
// A plain value, summed up when it is made. Immutable.
class AxisRate {
 public:
  AxisRate() = default;  // a group of one
  // Levels from the nearest; the product of their sizes is the group.
  AxisRate(std::span<const RateLevel> levels, double seconds_per_step, RateSource source);

  int64_t group() const { return group_; }
  RateSource source() const { return source_; }
  // What a ring of as many bytes in one level would have: bytes sent over time, without latency.
  double bytes_per_second() const;

  double Seconds(CollectiveOp op, double message_bytes) const {
    if (group_ <= 1) return 0;
    switch (op) {
      case CollectiveOp::kAllGather:
      case CollectiveOp::kReduceScatter:
        return ring_latency_ + ring_seconds_per_byte_ * message_bytes;
      case CollectiveOp::kAllReduce:
        return 2 * (ring_latency_ + ring_seconds_per_byte_ * message_bytes);
      case CollectiveOp::kAllToAll:
        return exchange_latency_ + exchange_seconds_per_byte_ * message_bytes;
      case CollectiveOp::kSend:
        return send_latency_ + send_seconds_per_byte_ * message_bytes;
    }
    return 0;
  }

 private:
  int64_t group_ = 1;
  RateSource source_ = RateSource::kDescribed;
  double ring_latency_ = 0;
  double ring_seconds_per_byte_ = 0;  // of the message
  double exchange_latency_ = 0;
  double exchange_seconds_per_byte_ = 0;
  double send_latency_ = 0;
  double send_seconds_per_byte_ = 0;
};

// A group, by its place in the order of the axes.
struct AxisPosition {
  int64_t inner = 1;
  int64_t own = 1;

  friend auto operator<=>(const AxisPosition&, const AxisPosition&) = default;
};

// The rates of every position that an axis of any grid on these devices may have: all pairs of
// divisors whose product divides the devices. Immutable. A look-up costs no search.
class PositionRates {
 public:
  struct Entry {
    AxisPosition position;
    AxisRate rate;
  };

  // InvalidArgument, naming the position: not all, or one twice.
  static absl::StatusOr<PositionRates> Create(int64_t devices, std::span<const Entry> entries);
  // The positions that Create wants of so many devices, ascending.
  static std::vector<AxisPosition> PositionsOf(int64_t devices);

  int64_t devices() const { return devices_; }
  const AxisRate& At(int64_t inner, int64_t own) const {
    return own <= 1 ? one_ : rates_[index_[inner] * divisors_ + index_[own]];
  }

 private:
  int64_t devices_ = 1;
  int64_t divisors_ = 0;
  std::vector<int32_t> index_;  // of divisors
  std::vector<AxisRate> rates_;
  AxisRate one_;
};

}  // namespace crossmesh

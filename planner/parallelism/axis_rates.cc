#include "planner/parallelism/axis_rates.h"

#include <algorithm>

#include <absl/strings/str_cat.h>

namespace crossmesh {

absl::string_view RateSourceName(RateSource source) {
  switch (source) {
    case RateSource::kMeasured:
      return "measured";
    case RateSource::kTable:
      return "table";
    case RateSource::kDescribed:
      return "described";
    case RateSource::kTheory:
      return "theory";
  }
  return "";
}

AxisRate::AxisRate(std::span<const RateLevel> levels, double seconds_per_step, RateSource source)
    : source_(source) {
  for (const RateLevel& level : levels) {
    if (level.size <= 1) continue;
    const auto others = static_cast<double>(level.size - 1);
    const auto nearer = static_cast<double>(group_);
    group_ *= level.size;
    // A ring at this level carries pieces of all the nearer ones' size; of the message, that is
    // 1 / (group up to here) for each of the others.
    ring_latency_ += seconds_per_step + others * level.seconds_per_message;
    ring_seconds_per_byte_ += others / (static_cast<double>(group_) * level.bytes_per_second);
    // Every peer by itself, at the link between them.
    exchange_latency_ += others * nearer * level.seconds_per_message;
    exchange_seconds_per_byte_ += others * nearer / level.bytes_per_second;
    // To the next one over the farthest link: some device has it.
    send_latency_ = seconds_per_step + level.seconds_per_message;
    send_seconds_per_byte_ = 1 / level.bytes_per_second;
  }
  exchange_latency_ += seconds_per_step;
  exchange_seconds_per_byte_ /= static_cast<double>(group_);
}

double AxisRate::bytes_per_second() const {
  if (group_ <= 1) return 0;
  return WireBytes(CollectiveOp::kAllGather, group_, 1) / ring_seconds_per_byte_;
}

std::vector<AxisPosition> PositionRates::PositionsOf(int64_t devices) {
  std::vector<AxisPosition> positions;
  for (int64_t inner = 1; inner <= devices; ++inner) {
    if (devices % inner != 0) continue;
    for (int64_t own = 2; own <= devices / inner; ++own) {
      if (devices / inner % own == 0) positions.push_back({inner, own});
    }
  }
  return positions;
}

absl::StatusOr<PositionRates> PositionRates::Create(int64_t devices,
                                                    std::span<const Entry> entries) {
  const std::vector<AxisPosition> wanted = PositionsOf(devices);
  std::vector<AxisPosition> found;
  for (const Entry& entry : entries) found.push_back(entry.position);
  std::ranges::sort(found);
  if (found != wanted) {
    return absl::InvalidArgumentError(
        absl::StrCat("rates of ", devices, " devices: expected each of ", wanted.size(),
                     " positions once, found ", found.size(), " entries"));
  }
  PositionRates rates;
  rates.devices_ = devices;
  rates.index_.assign(devices + 1, -1);
  for (int64_t divisor = 1; divisor <= devices; ++divisor) {
    if (devices % divisor == 0) {
      rates.index_[divisor] = static_cast<int32_t>(rates.divisors_++);
    }
  }
  rates.rates_.resize(rates.divisors_ * rates.divisors_);
  for (const auto& [position, rate] : entries) {
    rates.rates_[rates.index_[position.inner] * rates.divisors_ + rates.index_[position.own]] =
        rate;
  }
  return rates;
}

}  // namespace crossmesh

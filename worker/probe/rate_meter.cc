#include "worker/probe/rate_meter.h"

#include <algorithm>

namespace crossmesh {
namespace {

constexpr absl::Duration kSampleInterval = absl::Milliseconds(1);

}  // namespace

void RateMeter::Add(absl::Duration now, int64_t bytes) {
  last_ = {now, last_.bytes + bytes};
  if (now - samples_.back().time >= kSampleInterval) samples_.push_back(last_);
}

int64_t RateMeter::BytesPerSecond() const {
  const absl::Duration begin = samples_.front().time;
  const absl::Duration settled = begin + (last_.time - begin) / 4;
  const auto found =
      std::ranges::find_if(samples_, [&](const Sample& sample) { return sample.time >= settled; });
  const bool within = found != samples_.end() && found->time < last_.time;
  const Sample& from = within ? *found : samples_.front();
  const double seconds = absl::ToDoubleSeconds(last_.time - from.time);
  if (seconds <= 0) return 0;
  return static_cast<int64_t>(static_cast<double>(last_.bytes - from.bytes) / seconds);
}

}  // namespace crossmesh

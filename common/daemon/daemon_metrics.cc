#include "common/daemon/daemon_metrics.h"

#include "common/base/digest_builder.h"

#include <cstdint>

namespace crossmesh {
namespace {

// What a sample of Prometheus, a double, holds exactly.
constexpr uint64_t kHashMask = (uint64_t{1} << 53) - 1;

}  // namespace

void DaemonMetrics::ConfigurationLoaded(absl::string_view text, absl::Time now) {
  DigestBuilder digest;
  digest.AddText(text);
  hash_.Set(digest.Finish().low & kHashMask);
  is_successful_.Set(1);
  loaded_at_.Set(absl::ToUnixSeconds(now));
}

void DaemonMetrics::Reloaded(bool is_successful) {
  reloads_.Increment(is_successful ? ReloadResult::kSuccess : ReloadResult::kFailure);
  is_successful_.Set(is_successful ? 1 : 0);
}

}  // namespace crossmesh

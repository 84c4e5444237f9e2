#include "worker/gpu/compiler/testing/host_staging.h"

#include <algorithm>
#include <utility>

#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

constexpr std::byte kRubbish{0xDB};
constexpr int32_t kNobody = -1;
constexpr int64_t kGranule = ChunkMessage::kPlaceAlignment;

absl::Status Wrong(const StagingUses::Tenant& place, absl::string_view expected, int32_t found) {
  return absl::InternalError(
      absl::StrCat("staging at ", place.offset, ": expected ", expected, ", found tenant ", found));
}

}  // namespace

HostStaging::HostStaging(const CompiledPart& compiled, StagingUses uses)
    : uses_(std::move(uses)),
      bytes_(compiled.staging_bytes(), kRubbish),
      tenant_of_granule_(compiled.staging_bytes() / kGranule + 1, kNobody) {
  for (const StagingUses::Tenant& tenant : uses_.tenants) {
    reads_left_.push_back(std::ssize(tenant.read));
  }
}

absl::StatusOr<std::span<std::byte>> HostStaging::Write(int32_t tenant) {
  const StagingUses::Tenant& place = uses_.tenants[tenant];
  for (int32_t& there : TenantsIn(place)) {
    if (there != kNobody && reads_left_[there] > 0) {
      return Wrong(place, absl::StrCat("nobody before tenant ", tenant), there);
    }
    there = tenant;
  }
  return BytesOf(place);
}

absl::StatusOr<std::span<const std::byte>> HostStaging::Read(int32_t tenant) {
  const StagingUses::Tenant& place = uses_.tenants[tenant];
  for (const int32_t there : TenantsIn(place)) {
    if (there != tenant) return Wrong(place, absl::StrCat("tenant ", tenant), there);
  }
  return BytesOf(place);
}

void HostStaging::EndRead(int32_t tenant) {
  if (--reads_left_[tenant] > 0) return;
  std::ranges::fill(BytesOf(uses_.tenants[tenant]), kRubbish);
}

std::span<int32_t> HostStaging::TenantsIn(const StagingUses::Tenant& place) {
  const int64_t first = place.offset / kGranule;
  const int64_t end = (place.offset + place.bytes + kGranule - 1) / kGranule;
  return std::span(tenant_of_granule_).subspan(first, end - first);
}

std::span<std::byte> HostStaging::BytesOf(const StagingUses::Tenant& place) {
  return std::span(bytes_).subspan(place.offset, place.bytes);
}

}  // namespace crossmesh

#pragma once

#include "worker/gpu/compiler/compiled_part.h"
#include "worker/gpu/compiler/testing/staging_uses.h"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

namespace crossmesh {

// A compiled part's staging in host memory, which knows its tenants: no tenant is written over
// before all its readers have read it, and no other reader reads its place. What has been read for
// the last time becomes rubbish, as staging is at first. Thread-compatible.
class HostStaging {
 public:
  HostStaging(const CompiledPart& compiled, StagingUses uses);

  const StagingUses& uses() const { return uses_; }
  // The tenant's place, to be written whole. Internal when a tenant there is still to be read.
  absl::StatusOr<std::span<std::byte>> Write(int32_t tenant);
  // The tenant's bytes, to be read once. Internal when they are not there. Followed by EndRead.
  absl::StatusOr<std::span<const std::byte>> Read(int32_t tenant);
  void EndRead(int32_t tenant);

 private:
  std::span<int32_t> TenantsIn(const StagingUses::Tenant& place);
  std::span<std::byte> BytesOf(const StagingUses::Tenant& place);

  const StagingUses uses_;
  std::vector<std::byte> bytes_;
  std::vector<int32_t> tenant_of_granule_;
  std::vector<int64_t> reads_left_;  // by tenant
};

}  // namespace crossmesh

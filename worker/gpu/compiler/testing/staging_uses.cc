#include "worker/gpu/compiler/testing/staging_uses.h"

#include "common/base/status_macros.h"

#include <map>
#include <utility>

#include <absl/status/status.h>
#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

class UsesFinder {
 public:
  explicit UsesFinder(const CompiledPart& compiled) : compiled_(compiled) {}

  absl::StatusOr<StagingUses> Find() {
    for (step_ = 0; step_ < std::ssize(compiled_.steps()); ++step_) {
      const CompiledPart::Step& step = compiled_.steps()[step_];
      for (const auto& pack : compiled_.packs(step)) {
        const int64_t bytes = compiled_.MessageOf(pack.end - pack.begin).bytes();
        RETURN_IF_ERROR(Write(StepStream::kPack, pack.staging_offset, bytes, uses_.of_pack));
      }
      for (const auto& send : compiled_.sends(step)) {
        RETURN_IF_ERROR(Read(StepStream::kWire, send.staging_offset, send.bytes, uses_.of_send));
      }
      for (const auto& receive : compiled_.receives(step)) {
        RETURN_IF_ERROR(
            Write(StepStream::kWire, receive.staging_offset, receive.bytes, uses_.of_receive));
      }
      for (const auto& broadcast : compiled_.broadcasts(step)) {
        RETURN_IF_ERROR(AddBroadcast(broadcast));
      }
      for (const auto& unpack : compiled_.unpacks(step)) {
        const int64_t bytes = compiled_.MessageOf(unpack.end - unpack.begin).bytes();
        RETURN_IF_ERROR(Read(StepStream::kUnpack, unpack.staging_offset, bytes, uses_.of_unpack));
      }
    }
    return std::move(uses_);
  }

 private:
  // Read at its root, written everywhere else.
  absl::Status AddBroadcast(const CompiledPart::Transfer& broadcast) {
    const bool is_root = broadcast.peer == compiled_.device();
    return is_root ? Read(StepStream::kWire, broadcast.staging_offset, broadcast.bytes,
                          uses_.of_broadcast)
                   : Write(StepStream::kWire, broadcast.staging_offset, broadcast.bytes,
                           uses_.of_broadcast);
  }

  absl::Status Write(StepStream stream, int64_t offset, int64_t bytes,
                     std::vector<int32_t>& index) {
    if (offset % ChunkMessage::kPlaceAlignment != 0 || offset < 0 ||
        offset + bytes > compiled_.staging_bytes()) {
      return Wrong(offset, absl::StrCat("a place for ", bytes, " bytes"), "none");
    }
    const auto tenant = static_cast<int32_t>(uses_.tenants.size());
    tenant_at_[offset] = tenant;
    index.push_back(tenant);
    uses_.tenants.push_back({.offset = offset, .bytes = bytes, .written = {stream, step_}});
    return absl::OkStatus();
  }

  absl::Status Read(StepStream stream, int64_t offset, int64_t bytes, std::vector<int32_t>& index) {
    const auto found = tenant_at_.find(offset);
    if (found == tenant_at_.end()) return Wrong(offset, "a message", "none");
    StagingUses::Tenant& tenant = uses_.tenants[found->second];
    if (tenant.bytes != bytes) {
      return Wrong(offset, absl::StrCat(bytes, " bytes"), absl::StrCat(tenant.bytes));
    }
    tenant.read.push_back({stream, step_});
    index.push_back(found->second);
    return absl::OkStatus();
  }

  absl::Status Wrong(int64_t offset, absl::string_view expected, absl::string_view found) const {
    return absl::InternalError(absl::StrCat("step ", step_, ", staging at ", offset, ": expected ",
                                            expected, ", found ", found));
  }

  const CompiledPart& compiled_;
  StagingUses uses_;
  std::map<int64_t, int32_t> tenant_at_;  // by offset: the last one
  int32_t step_ = 0;
};

}  // namespace

absl::StatusOr<StagingUses> FindStagingUses(const CompiledPart& compiled) {
  return UsesFinder(compiled).Find();
}

}  // namespace crossmesh

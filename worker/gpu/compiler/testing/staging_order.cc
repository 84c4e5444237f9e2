#include "worker/gpu/compiler/testing/staging_order.h"

#include "common/base/status_macros.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include <absl/status/statusor.h>
#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

constexpr size_t kStreams = 3;
constexpr std::array<absl::string_view, kStreams> kStreamNames = {"packs", "transfers", "unpacks"};

size_t IndexOf(StepStream stream) { return static_cast<size_t>(stream); }

// By stream: how many steps have certainly ended.
using Ended = std::array<int64_t, kStreams>;

void Join(Ended& ended, const Ended& other) {
  for (size_t i = 0; i < kStreams; ++i) ended[i] = std::max(ended[i], other[i]);
}

// What a stream does in a step, by index.
struct StreamStep {
  StepStream stream = StepStream::kPack;
  int32_t step = 0;
};

// What has a place of the staging, from when until when: what is packed or received at an offset is
// there for what is sent or unpacked from it until the next one comes.
struct Tenant {
  int64_t offset = 0;
  int64_t bytes = 0;
  StreamStep written;
  std::vector<StreamStep> read;
};

// Finds the tenants of a compiled part as they come, step by step. Internal when a place is at no
// multiple of 256 or outside of the staging, or when what is sent or unpacked from a place is not
// what was put there.
class TenantFinder {
 public:
  explicit TenantFinder(const CompiledPart& compiled) : compiled_(compiled) {}

  absl::StatusOr<std::vector<Tenant>> Find() {
    for (step_ = 0; step_ < std::ssize(compiled_.steps()); ++step_) {
      const CompiledPart::Step& step = compiled_.steps()[step_];
      for (const auto& pack : compiled_.packs(step)) {
        const int64_t bytes = compiled_.MessageOf(pack.end - pack.begin).bytes();
        RETURN_IF_ERROR(Write(StepStream::kPack, pack.staging_offset, bytes));
      }
      for (const auto& send : compiled_.sends(step)) {
        RETURN_IF_ERROR(Read(StepStream::kWire, send.staging_offset, send.bytes));
      }
      for (const auto& receive : compiled_.receives(step)) {
        RETURN_IF_ERROR(Write(StepStream::kWire, receive.staging_offset, receive.bytes));
      }
      for (const auto& broadcast : compiled_.broadcasts(step)) {
        RETURN_IF_ERROR(AddBroadcast(broadcast));
      }
      for (const auto& unpack : compiled_.unpacks(step)) {
        const int64_t bytes = compiled_.MessageOf(unpack.end - unpack.begin).bytes();
        RETURN_IF_ERROR(Read(StepStream::kUnpack, unpack.staging_offset, bytes));
      }
    }
    return std::move(tenants_);
  }

 private:
  // Read at its root, written everywhere else.
  absl::Status AddBroadcast(const CompiledPart::Transfer& broadcast) {
    const bool is_root = broadcast.peer == compiled_.device();
    return is_root ? Read(StepStream::kWire, broadcast.staging_offset, broadcast.bytes)
                   : Write(StepStream::kWire, broadcast.staging_offset, broadcast.bytes);
  }

  absl::Status Write(StepStream stream, int64_t offset, int64_t bytes) {
    if (offset % ChunkMessage::kPlaceAlignment != 0 || offset < 0 ||
        offset + bytes > compiled_.staging_bytes()) {
      return Wrong(offset, absl::StrCat("a place for ", bytes, " bytes"), "none");
    }
    tenant_at_[offset] = tenants_.size();
    tenants_.push_back({.offset = offset, .bytes = bytes, .written = {stream, step_}});
    return absl::OkStatus();
  }

  absl::Status Read(StepStream stream, int64_t offset, int64_t bytes) {
    const auto found = tenant_at_.find(offset);
    if (found == tenant_at_.end()) return Wrong(offset, "a message", "none");
    Tenant& tenant = tenants_[found->second];
    if (tenant.bytes != bytes) {
      return Wrong(offset, absl::StrCat(bytes, " bytes"), absl::StrCat(tenant.bytes));
    }
    tenant.read.push_back({stream, step_});
    return absl::OkStatus();
  }

  absl::Status Wrong(int64_t offset, absl::string_view expected, absl::string_view found) const {
    return absl::InternalError(absl::StrCat("step ", step_, ", staging at ", offset, ": expected ",
                                            expected, ", found ", found));
  }

  const CompiledPart& compiled_;
  std::vector<Tenant> tenants_;
  std::map<int64_t, size_t> tenant_at_;  // by offset: the last one
  int32_t step_ = 0;
};

class OrderProver {
 public:
  OrderProver(const CompiledPart& compiled, std::span<const CompiledPart::Step> steps)
      : compiled_(compiled), steps_(steps) {
    for (std::vector<Ended>& before : before_) before.resize(steps.size());
  }

  absl::Status Prove() {
    for (size_t step = 0; step < steps_.size(); ++step) FindEnded(step);
    ASSIGN_OR_RETURN(const std::vector<Tenant> tenants, TenantFinder(compiled_).Find());
    std::vector<int32_t> tenant_of_granule(
        compiled_.staging_bytes() / ChunkMessage::kPlaceAlignment + 1, -1);
    for (int32_t i = 0; i < std::ssize(tenants); ++i) {
      const Tenant& tenant = tenants[i];
      for (const StreamStep& read : tenant.read) RETURN_IF_ERROR(Ends(tenant.written, read));
      const int64_t first = tenant.offset / ChunkMessage::kPlaceAlignment;
      const int64_t end = (tenant.offset + tenant.bytes - 1) / ChunkMessage::kPlaceAlignment;
      for (int64_t granule = first; granule <= end; ++granule) {
        const int32_t former = std::exchange(tenant_of_granule[granule], i);
        if (former < 0) continue;
        for (const StreamStep& read : tenants[former].read) {
          RETURN_IF_ERROR(Ends(read, tenant.written));
        }
      }
    }
    return absl::OkStatus();
  }

 private:
  // What has ended before each stream begins with the step.
  void FindEnded(size_t s) {
    const CompiledPart::Step& step = steps_[s];
    const auto wait = [this](Ended& before, StepStream stream, int64_t until) {
      if (until != kNoStep) Join(before, After(stream, until));
    };
    for (const StepStream stream : {StepStream::kPack, StepStream::kWire, StepStream::kUnpack}) {
      Ended& before = before_[IndexOf(stream)][s];
      wait(before, stream, static_cast<int64_t>(s) - 1);
      switch (stream) {
        case StepStream::kPack:
          wait(before, StepStream::kWire, step.pack_after_wire);
          wait(before, StepStream::kUnpack, step.pack_after_unpack);
          break;
        case StepStream::kWire:
          if (!step.packs.empty()) Join(before, After(StepStream::kPack, s));
          wait(before, StepStream::kUnpack, step.wire_after_unpack);
          break;
        case StepStream::kUnpack:
          if (!step.unpacks.empty()) Join(before, After(StepStream::kWire, s));
          break;
      }
    }
  }

  // What has ended when the stream has ended the step.
  Ended After(StepStream stream, int64_t step) const {
    Ended ended = before_[IndexOf(stream)][step];
    ended[IndexOf(stream)] = step + 1;
    return ended;
  }

  absl::Status Ends(const StreamStep& first, const StreamStep& then) const {
    const Ended& before = before_[IndexOf(then.stream)][then.step];
    if (before[IndexOf(first.stream)] > first.step) return absl::OkStatus();
    return absl::InternalError(absl::StrCat(kStreamNames[IndexOf(then.stream)], " of step ",
                                            then.step, ": expected to begin after the ",
                                            kStreamNames[IndexOf(first.stream)], " of step ",
                                            first.step, ", found no such wait"));
  }

  const CompiledPart& compiled_;
  const std::span<const CompiledPart::Step> steps_;
  std::array<std::vector<Ended>, kStreams> before_;  // [stream][step]
};

}  // namespace

absl::Status ProveStagingOrder(const CompiledPart& compiled,
                               std::span<const CompiledPart::Step> steps) {
  return OrderProver(compiled, steps).Prove();
}

}  // namespace crossmesh

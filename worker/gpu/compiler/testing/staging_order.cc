#include "worker/gpu/compiler/testing/staging_order.h"

#include "common/base/status_macros.h"
#include "worker/gpu/compiler/testing/staging_uses.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>
#include <vector>

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

class OrderProver {
 public:
  OrderProver(const CompiledPart& compiled, std::span<const CompiledPart::Step> steps)
      : compiled_(compiled), steps_(steps) {
    for (std::vector<Ended>& before : before_) before.resize(steps.size());
  }

  absl::Status Prove() {
    for (size_t step = 0; step < steps_.size(); ++step) FindEnded(step);
    ASSIGN_OR_RETURN(const StagingUses uses, FindStagingUses(compiled_));
    std::vector<int32_t> tenant_of_granule(
        compiled_.staging_bytes() / ChunkMessage::kPlaceAlignment + 1, -1);
    for (int32_t i = 0; i < std::ssize(uses.tenants); ++i) {
      const StagingUses::Tenant& tenant = uses.tenants[i];
      for (const StreamStep& read : tenant.read) RETURN_IF_ERROR(Ends(tenant.written, read));
      const int64_t first = tenant.offset / ChunkMessage::kPlaceAlignment;
      const int64_t end = (tenant.offset + tenant.bytes - 1) / ChunkMessage::kPlaceAlignment;
      for (int64_t granule = first; granule <= end; ++granule) {
        const int32_t former = std::exchange(tenant_of_granule[granule], i);
        if (former < 0) continue;
        for (const StreamStep& read : uses.tenants[former].read) {
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

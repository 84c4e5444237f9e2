// What a GPU's part in an execution costs beside its ports: the defaults, each with its source.
// They are assumed, read out of NCCL 2.30.7 and CUDA 13, until they are measured (docs/adr/0019).

#pragma once

#include <array>
#include <cstdint>
#include <string>

#include <absl/status/status.h>
#include <absl/strings/string_view.h>

namespace crossmesh {

inline constexpr absl::string_view kAssumed = "assumed";

// InvalidArgument, naming `object`: not 1 to 200 printable bytes of UTF-8. A source is "assumed",
// or what somebody who measured says: "measured on GPU-4bd8... at 2026-11-27T06:20:00Z".
absl::Status CheckSource(absl::string_view object, absl::string_view source);

// A cost, and where it comes from.
struct GpuCost {
  int64_t value = 0;
  std::string source{kAssumed};
  friend bool operator==(const GpuCost&, const GpuCost&) = default;
};

// Of all GPUs of a network: where they differ, those of the slowest.
struct GpuCosts {
  // From one launch of a short kernel to the next, on one stream: cuLaunchKernel, its event, and
  // the kernel's own beginning and end. 3 to 8 us by what is said of CUDA.
  GpuCost launch_ns{5'000};
  // Of the thread that issues one group of NCCL calls, until it can issue the next: in a
  // communicator that does not block ncclGroupEnd starts a thread, which launches (group.cc), and
  // the next group may not begin before ncclCommGetAsyncError has joined it. With a launch before
  // and one after it 40 to 100 us.
  GpuCost group_ns{50'000};
  // Of one more message in a group: enqueueing it, and its turn in the kernel.
  GpuCost message_ns{1'000};
  // Of a channel's copy loop, one CTA. The most that NCCL takes for a channel of a ring by LL128 is
  // 20 GB/s for Ampere and 36.7 GB/s for Hopper (tuning.cc); here the lower one stands for all.
  GpuCost channel_bytes_per_second{20'000'000'000};

  // Of the thread that issues a step: a launch that packs, a group, a launch that unpacks.
  double step_seconds() const;
  double message_seconds() const { return static_cast<double>(message_ns.value) * 1e-9; }

  friend bool operator==(const GpuCosts&, const GpuCosts&) = default;
};

// By name, in the order in which they are shown.
struct GpuCostField {
  absl::string_view name;
  GpuCost GpuCosts::* cost = nullptr;
  int64_t most = 0;  // the least is 1
};
inline constexpr int64_t kGpuCostNsMax = 1'000'000'000;  // 1 s
inline constexpr int64_t kGpuCostRateMax = int64_t{1} << 50;
inline constexpr std::array<GpuCostField, 4> kGpuCostFields = {{
    {"launch_ns", &GpuCosts::launch_ns, kGpuCostNsMax},
    {"group_ns", &GpuCosts::group_ns, kGpuCostNsMax},
    {"message_ns", &GpuCosts::message_ns, kGpuCostNsMax},
    {"channel_bytes_per_second", &GpuCosts::channel_bytes_per_second, kGpuCostRateMax},
}};

// InvalidArgument, naming the cost: a value below 1 or beyond its most, or what CheckSource says.
absl::Status CheckCosts(const GpuCosts& costs);

}  // namespace crossmesh

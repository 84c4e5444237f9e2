#pragma once

#include "common/mesh/device.h"
#include "planner/layers/layer_program.h"
#include "planner/parallelism/axis_rates.h"
#include "planner/parallelism/network_rates.h"

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <absl/status/statusor.h>

namespace crossmesh {

// How an axis is measured: gathers over its groups, all beside each other, as a layer program that
// workers rehearse. Every group gathers one size some times, then a larger one; before each gather
// all devices meet in one of a few bytes, so that they begin it together.
struct AxisTrial {
  static constexpr int kMessages = 5;  // of a size
  static constexpr int64_t kBytesMax = int64_t{1} << 32;

  AxisPosition position;
  // What every device of a group has after a gather of either size.
  int64_t small_bytes = 0;
  int64_t large_bytes = 0;
  LayerProgram program;  // with transfers kSmallGather and kLargeGather
};
inline constexpr char kSmallGather[] = "small";
inline constexpr char kLargeGather[] = "large";

// Of about `large_bytes`, rounded up to what divides, and a sixteenth of it. InvalidArgument: fewer
// than two devices, one that is there twice, a position that no axis over so many devices has, or
// other than 4,096 to kBytesMax bytes.
absl::StatusOr<AxisTrial> MakeAxisTrial(std::span<const DeviceId> devices, AxisPosition position,
                                        int64_t large_bytes);

// The ring that takes as long as was measured for both sizes: alpha and beta. OutOfRange, naming
// the position, when the larger size did not take longer, which leaves no rate.
absl::StatusOr<MeasuredPosition> FitPosition(const AxisTrial& trial, double small_seconds,
                                             double large_seconds);

}  // namespace crossmesh

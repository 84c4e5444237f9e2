#pragma once

#include "common/mesh/device.h"
#include "common/mesh/topology.h"

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>

namespace crossmesh {

// What the process of a GPU measured, as MeasureGpuResponse has it.
struct GpuFigures {
  DeviceId device;
  bool is_share = false;  // of a GPU, for tests; it has few channels
  std::string model;
  int64_t launch_ns = 0;
  int64_t group_ns = 0;
  int64_t message_ns = 0;
  int64_t copy_bytes_per_second = 0;
  // In a ring of the GPUs of its host; 0: it was alone.
  int64_t exchange_bytes_per_second = 0;
  int64_t exchange_message_bytes = 0;
};

struct CalibratedNetwork {
  Topology topology;
  std::vector<std::string> warnings;  // what stays as it was, and why
};

// The description that follows from the figures, whose source is "measured on MODEL at `time`":
//
// - launch, group and message of the slowest GPU;
// - of each GPU that is listed, how fast its kernels copy;
// - of an exchange, what its slower half can have been by `before`: the links, or a channel, of so
//   many as NCCL gives the message. The other one stays as it was.
//
// OutOfRange, naming the GPU: a figure below 1, or beyond what a description may have. What
// Topology::Create refuses. Cost: linear in the figures, times those of a host.
absl::StatusOr<CalibratedNetwork> CalibratedTopology(std::span<const GpuFigures> figures,
                                                     const Topology& before,
                                                     absl::string_view time);

}  // namespace crossmesh

#pragma once

#include "common/base/backoff.h"
#include "common/base/byte_count.h"

#include <csignal>
#include <cstdint>
#include <string>
#include <vector>

#include <absl/time/time.h>

namespace crossmesh {

struct GpuProcessOptions {
  std::string gpu;      // its UUID, or that of a share (common/communicators/gpu_share.h)
  std::string program;  // path; empty: crossmesh-gpu beside this process's own program
  std::string driver_library = "libcuda.so.1";
  std::string nccl_library = "libnccl.so.2";
  std::string m2n_library = "libnccl_m2n.so";      // NCCL M2N, which may be missing
  std::string nvml_library = "libnvidia-ml.so.1";  // the driver's management library, likewise
  std::string system_root;                         // where /proc and /dev are, for tests
  // "NAME=value", beside this process's own, of which child_environment.h has exceptions.
  std::vector<std::string> environment;
  ByteCount staging_bytes{int64_t{256} << 20};
  // Thread blocks of a communicator, at least and at most; 0: as NCCL thinks best.
  int ctas_min = 0;
  int ctas_max = 0;

  absl::Duration start_limit = absl::Minutes(2);    // from the start of the program to its hello
  absl::Duration answer_limit = absl::Seconds(30);  // of a request, beyond the time that it gives
  absl::Duration ping_interval = absl::Seconds(1);
  absl::Duration ping_limit = absl::Seconds(20);  // a call of the driver can take seconds
  // Of the abort of a communicator; what takes longer hangs. Below answer_limit.
  absl::Duration communicator_end_limit = absl::Seconds(20);
  absl::Duration stop_limit = absl::Seconds(5);  // for the process to end by itself
  absl::Duration kill_limit = absl::Seconds(5);  // for the system to end it, once it is killed
  int kill_signal = SIGKILL;                     // as GpuChild::Options
  // Before another process takes the place of one that was lost.
  Backoff::Options backoff = {.initial = absl::Milliseconds(100), .max = absl::Seconds(30)};
};

}  // namespace crossmesh

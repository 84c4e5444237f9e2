#pragma once

#include "common/mesh/device.h"
#include "worker/data_transport.h"
#include "worker/executor/executor_options.h"
#include "worker/gpu/devices/gpu_name.h"
#include "worker/gpu/process/gpu_process_options.h"
#include "worker/memory/arena.h"

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/time/time.h>

namespace crossmesh {

class DaemonHealth;

struct WorkerOptions {
  std::string name;                      // [a-z0-9._-]{1,63}
  std::vector<DeviceId> devices;         // its own, in host memory
  std::vector<GpuName> gpus;             // more of its own; with `devices` at least one
  std::vector<std::string> controllers;  // as SessionAgent::Options
  std::string listen = "127.0.0.1:0";    // for Execute; or "unix:/path"
  std::string memory_socket;             // path, for user processes; empty: none
  std::string metrics_listen;            // as MetricsExporter says; empty: none
  DaemonHealth* health = nullptr;        // what is watched and served beside them; null: nothing
  bool insecure = false;                 // allows addresses that are not local, of metrics as well
  Arena::Pages pages = Arena::Pages::kSmall;
  // Bytes of host memory for all storages, shadows and buffers; 0: 0.9 of MemoryLimit.
  int64_t memory_max = 0;
  // As far as the system allows it. `insecure` above is not what allows its interfaces.
  DataTransportOptions data;
  std::string state_folder;  // remembers the controller's epoch; empty: in memory only
  ExecutorOptions executor;
  GpuProcessOptions gpu_process;    // of each GPU, but for its UUID
  bool computes_pipelines = false;  // the process calls WaitForPipeline
  // Called once on a thread of the worker, which it must not block, when the controller has asked
  // for a drain and nothing runs any more: the owner should call Stop.
  std::function<void()> on_drained;
  // For how long a controller may refuse the worker for its version before the worker gives up;
  // nothing: for ever, since the controller may be upgraded.
  std::optional<absl::Duration> version_refused_max;
  // Called once, likewise, when the name or a device belongs to another process, or the version is
  // refused, and the worker gives up: the owner should call Stop.
  std::function<void(const absl::Status&)> on_refused;
};

}  // namespace crossmesh

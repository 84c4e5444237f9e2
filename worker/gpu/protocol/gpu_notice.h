#pragma once

#include "common/communicators/communicator_key.h"
#include "common/communicators/preflight_report.h"
#include "worker/executor/task.h"
#include "worker/gpu/protocol/gpu_protocol.h"

#include <cstdint>
#include <string>
#include <variant>

#include <absl/status/status.h>

namespace crossmesh {

// What the process of a GPU tells its worker. Values.
struct GpuNotice {
  // The first, once the process has its GPU.
  struct Hello {
    uint32_t protocol = kGpuProtocol;
    PreflightReport preflight;
  };
  struct MintedId {
    std::string id;
  };
  struct CommunicatorBytes {
    int64_t bytes = 0;  // what it took of the GPU's memory
  };
  // To one request. With that to CreateArena comes the memory's descriptor.
  struct Answer {
    using Result = std::variant<std::monostate, MintedId, CommunicatorBytes, TaskReport>;

    uint64_t request = 0;
    absl::Status status;
    Result result;
  };
  struct TaskProgress {
    TaskKey key;
    int64_t moved_bytes = 0;
  };
  // It can no longer be used, without having been asked to end.
  struct CommunicatorLost {
    CommunicatorKey key;
    absl::Status cause;
  };
  // The process can do nothing more, and is to be killed.
  struct LastWords {
    absl::Status cause;
  };

  using Body = std::variant<Hello, Answer, TaskProgress, CommunicatorLost, LastWords>;

  Body body;
};

}  // namespace crossmesh

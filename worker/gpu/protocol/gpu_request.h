#pragma once

#include "common/base/byte_count.h"
#include "common/base/digest.h"
#include "common/base/strong_int.h"
#include "common/communicators/communicator_key.h"
#include "common/plan/tensor_table.h"
#include "worker/executor/task.h"

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include <absl/status/status.h>
#include <absl/time/time.h>

namespace crossmesh {

// Names memory of a GPU, as long as its worker runs. 0 is none.
using ArenaId = StrongInt<struct ArenaIdTag, uint64_t>;

// Where a tile begins.
struct TilePlace {
  ArenaId arena;  // 0: the device holds nothing of the tensor
  int64_t offset = 0;

  friend bool operator==(const TilePlace&, const TilePlace&) = default;
};

// What a worker asks of the process of one of its GPUs. Each is answered once, by its id. Values.
struct GpuRequest {
  // New memory, of zeros. The answer carries its descriptor.
  struct CreateArena {
    ArenaId arena;
    ByteCount bytes;
  };
  // Memory whose descriptor comes with the request.
  struct ImportArena {
    ArenaId arena;
    ByteCount bytes;
  };
  // No task uses it.
  struct ReleaseArena {
    ArenaId arena;
  };
  struct MintCommunicatorId {};
  // A key of a later epoch begins that epoch. Answered when it is ready, or has come to an end.
  struct CreateCommunicator {
    CommunicatorKey key;
    uint64_t ticket = 0;
    std::string id;
    absl::Duration timeout;  // until it is ready
  };
  // Answered when it is gone, as are those below.
  struct DestroyCommunicator {
    CommunicatorKey key;
    uint64_t ticket = 0;
    absl::Duration timeout;
  };
  struct StopCommunicator {
    CommunicatorKey key;
    absl::Status cause;
  };
  struct PreparePart {
    Digest digest;
    std::string part;  // a serialized v1::WorkerPart of one device
  };
  // Answered, with a report, when nothing of it goes on.
  struct RunTask {
    TaskKey key;
    Digest part;  // prepared before
    bool checksums = true;
    std::vector<TilePlace> sources;       // by manifest index
    std::vector<TilePlace> destinations;  // by manifest index
    CommunicatorKey communicator;
    std::vector<DeviceRank> devices;  // of the plan, by rank of the communicator
    absl::Duration deadline;
    absl::Duration stall_limit;
  };
  // Copies between an arena and memory of the host whose descriptor comes with the request.
  // Answered when nothing of it goes on; DataLoss when what is then in both differs.
  struct CopyTiles {
    enum class Direction : uint8_t {
      kLoad,   // from the arena to the host
      kStore,  // from the host to the arena
    };
    // What lies at the same place in both.
    struct Range {
      int64_t offset = 0;
      int64_t bytes = 0;  // at least 1

      int64_t end() const { return offset + bytes; }
      friend bool operator==(const Range&, const Range&) = default;
    };

    TaskKey key;
    Direction direction = Direction::kLoad;
    ArenaId arena;
    std::vector<Range> ranges;  // ascending, apart from each other
    bool checksums = true;
    absl::Duration deadline;
  };
  // Runs and copies of the task.
  struct CancelTask {
    TaskKey key;
    absl::Status cause;
  };
  struct Ping {};

  using Body = std::variant<CreateArena, ImportArena, ReleaseArena, MintCommunicatorId,
                            CreateCommunicator, DestroyCommunicator, StopCommunicator, PreparePart,
                            RunTask, CopyTiles, CancelTask, Ping>;

  uint64_t id = 0;  // from 1
  Body body;
};

}  // namespace crossmesh

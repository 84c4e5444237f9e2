#pragma once

#include "common/base/byte_count.h"
#include "common/mesh/device.h"
#include "common/plan/worker_part.h"
#include "worker/memory/arena.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include <absl/container/btree_map.h>
#include <absl/status/statusor.h>

namespace crossmesh {

// Makes memory of the host for what a device of this worker has between steps.
using MakeArrayMemory =
    std::function<absl::StatusOr<std::shared_ptr<Arena>>(const DeviceId&, ByteCount)>;

// What the courses of a task have between their steps on this worker's devices; one course after
// the other uses it.
class ArrayMemory {
 public:
  // ResourceExhausted: what `make` says, with the device.
  static absl::StatusOr<ArrayMemory> Create(const WorkerPart& part, const MakeArrayMemory& make);

  // None where no course has arrays on the device.
  std::byte* of(const DeviceId& device) const;
  int64_t bytes() const;

 private:
  absl::btree_map<DeviceId, std::shared_ptr<Arena>> arenas_;
};

}  // namespace crossmesh

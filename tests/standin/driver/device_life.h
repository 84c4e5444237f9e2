#pragma once

#include "common/base/unique_fd.h"

#include <cstdint>
#include <string>

namespace crossmesh {

// How long the memory of a GPU lasts. With persistence, for ever. Without it, for one life of the
// device: as long as any process has the device's file open, which this process has from now on.
// The first process to open it after that begins another life, in which memory of the life before
// is gone, whatever descriptors of it there are.
//
// On a system that CROSSMESH_STANDIN_NO_PERSISTENCE names by its root, devices have the files
// /dev/nvidiaN there, which are pipes, since a pipe tells whether it is open elsewhere. The file
// /livesN has a byte for each life that has begun; one more is a reset. Immutable.
class DeviceLife {
 public:
  explicit DeviceLife(int number);

  // From 1; 0 with persistence.
  int64_t number() const { return number_; }

 private:
  UniqueFd device_;
  int64_t number_ = 0;
};

}  // namespace crossmesh

#pragma once

#include "tests/standin/control/outcome.h"
#include "tests/standin/nccl/nccl_call.h"
#include "tests/standin/nccl/operation.h"

#include <vector>

#include <absl/strings/string_view.h>
#include <nccl.h>

namespace crossmesh {

// What a thread has gathered between ncclGroupStart and ncclGroupEnd: operations of one
// communicator. Confined to its thread.
class Group {
 public:
  static Group& OfThread();

  void Start() { ++depth_; }
  // Submits what was gathered when it ends the outermost group; what failed before fails here.
  Result End();

  // Submits the operation, or keeps it until the group ends.
  Result Add(ncclComm_t handle, const Operation& operation);
  // What all other calls on a communicator do first: they have no place in a group.
  Result CheckNone() const;

 private:
  // Remembers the first error.
  Result Remember(const Result& result);

  int depth_ = 0;
  ncclComm_t handle_ = nullptr;
  std::vector<Operation> operations_;
  Result error_;
};

}  // namespace crossmesh

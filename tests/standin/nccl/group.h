#pragma once

#include "tests/standin/control/outcome.h"
#include "tests/standin/nccl/nccl_call.h"
#include "tests/standin/nccl/operation.h"

#include <vector>

#include <absl/strings/string_view.h>
#include <nccl.h>

namespace crossmesh {

// What a thread has gathered between ncclGroupStart and ncclGroupEnd: operations of one
// communicator, or communicators that are being made, never both. Confined to its thread.
class Group {
 public:
  static Group& OfThread();

  void Start() { ++depth_; }
  // Submits what was gathered when it ends the outermost group; what failed before fails here.
  Result End(NcclCall& call);

  // Submits the operation, or keeps it until the group ends.
  Result Add(NcclCall& call, ncclComm_t handle, const Operation& operation);
  // What a call that makes a communicator does first.
  Result BeginInit();
  // What all other calls on a communicator do first: they have no place in a group.
  Result CheckNone() const;

 private:
  // Remembers the first error.
  Result Remember(const Result& result);

  int depth_ = 0;
  bool has_init_ = false;
  ncclComm_t handle_ = nullptr;
  std::vector<Operation> operations_;
  Result error_;
};

}  // namespace crossmesh

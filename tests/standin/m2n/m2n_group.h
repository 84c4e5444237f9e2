#pragma once

#include "tests/standin/control/outcome.h"
#include "tests/standin/m2n/reshard_checks.h"
#include "worker/gpu/libraries/m2n_declarations.h"

#include <string>
#include <utility>
#include <vector>

namespace crossmesh {

// What a thread has recorded between ncclM2nGroupStart and ncclM2nGroupEnd. Confined to its thread.
class M2nGroup {
 public:
  static M2nGroup& OfThread();

  void Start() { ++depth_; }
  bool is_open() const { return depth_ > 0; }
  // Records the call, or issues it where no group is open.
  Result Add(ncclM2nHandle_t handle, const ReshardCall& call);
  // Issues what was recorded when it ends the outermost group.
  Result End();
  void Abort() { *this = M2nGroup(); }

 private:
  int depth_ = 0;
  std::vector<std::pair<ncclM2nHandle_t, RecordedReshard>> calls_;
};

// The library's state in a process: handles, and what it keeps for communicators until the last
// handle goes. Thread-safe, though the library's own calls are to be made one after the other.
Result InitM2n(ncclM2nHandle_t* handle, const ncclM2nConfig_t* config);
Result FinalizeM2n(ncclM2nHandle_t handle);

}  // namespace crossmesh

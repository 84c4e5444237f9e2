#pragma once

#include "tests/standin/control/outcome.h"
#include "tests/standin/control/stand_in_control.h"
#include "tests/standin/nccl/communicator.h"

#include <cstdint>

#include <nccl.h>

namespace crossmesh {

// One call of NCCL from begin to end: finds the communicator, logs the call when it goes, and keeps
// the text of its error for ncclGetLastError. Confined to its thread.
class NcclCall {
 public:
  explicit NcclCall(const char* name, CUstream stream = nullptr, int64_t bytes = 0);
  ~NcclCall();
  NcclCall(const NcclCall&) = delete;
  NcclCall& operator=(const NcclCall&) = delete;

  // Ends the call, for its function to return.
  ncclResult_t End(const Result& result);

  // A communicator on which the call may be made.
  static Result Need(ncclComm_t handle, Communicator::Purpose purpose, Communicator*& communicator);
  // One that was neither destroyed nor aborted.
  static Result NeedOpen(ncclComm_t handle, Communicator*& communicator);

  // Empty before the first error of the thread.
  static const char* LastText();

 private:
  StandInCall log_;
};

// Null when there is none.
Communicator* FindCommunicator(ncclComm_t handle);

// To those of the process, which calls find by their handle.
ncclComm_t AddCommunicator(std::unique_ptr<Communicator> communicator);

}  // namespace crossmesh

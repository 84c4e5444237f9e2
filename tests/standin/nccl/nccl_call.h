#pragma once

#include "tests/standin/control/outcome.h"
#include "tests/standin/control/stand_in_control.h"
#include "tests/standin/nccl/communicator.h"

#include <cstdint>

#include <nccl.h>

namespace crossmesh {

// One call of NCCL from begin to end: finds the communicator and keeps other threads out of it,
// logs the call when it goes, and keeps the text of its error for ncclGetLastError. Confined to its
// thread.
class NcclCall {
 public:
  explicit NcclCall(const char* name, CUstream stream = nullptr, int64_t bytes = 0);
  ~NcclCall();
  NcclCall(const NcclCall&) = delete;
  NcclCall& operator=(const NcclCall&) = delete;

  // Ends the call, for its function to return.
  ncclResult_t End(const Result& result);

  // Until the call ends no other thread may enter.
  Result Enter(ncclComm_t handle, Communicator::Purpose purpose, Communicator*& communicator);
  // The same, in any state of the communicator.
  Result EnterAnyhow(ncclComm_t handle, Communicator*& communicator);

  // Empty before the first error of the thread.
  static const char* LastText();

 private:
  StandInCall log_;
  Communicator* entered_ = nullptr;
};

// All communicators of the process, by handle.
ncclComm_t AddCommunicator(std::unique_ptr<Communicator> communicator);
// Null when there never was one.
Communicator* FindCommunicator(ncclComm_t handle);

}  // namespace crossmesh

#pragma once

#include "common/base/mutex.h"
#include "common/base/thread.h"
#include "common/plan/m2n_transfer.h"
#include "worker/gpu/communicators/communicator.h"
#include "worker/gpu/libraries/driver_api.h"
#include "worker/gpu/libraries/m2n_api.h"

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <absl/functional/any_invocable.h>
#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <cuda.h>
#include <nccl.h>

namespace crossmesh {

// NCCL M2N in this process: its calls, of which one is made at a time, on a thread of its own since
// they wait for other ranks, and what it keeps for a communicator.
//
// It keeps windows, staging and streams by the communicator's address, until the last handle of the
// process is finalized, which is when it uses the communicator for the last time. So there is one
// handle at a time, of the communicator that used it last: it is finalized before another one uses
// M2N, and before that communicator is. A call that has failed has left the whole process in a
// state from which its header knows no way back; so has the end of a communicator in any other way.
//
// Confined to the thread that issues all work of the GPU.
class M2nRuntime {
 public:
  // `api`: or why there is none. `ctas_max`: thread blocks of its kernels at most; 0: as it thinks
  // best. `driver` must outlive it.
  M2nRuntime(const DriverApi& driver, absl::StatusOr<std::unique_ptr<const M2nApi>> api,
             int ctas_max = 0);
  // Waits for a call.
  ~M2nRuntime() = default;
  M2nRuntime(const M2nRuntime&) = delete;
  M2nRuntime& operator=(const M2nRuntime&) = delete;

  // OK, or why it cannot be used: it is not there, or has failed.
  absl::Status CheckUsable() const;
  // Not OK: it was used and has failed, for which there is only the end of the process.
  const absl::Status& failure() const { return failure_; }
  // Of the library; empty without it.
  std::string description() const { return api_.ok() ? (*api_)->description() : ""; }

  // Begins to record a call of ncclReshard for each tensor, and to issue them as one group. All
  // ranks of the communicator must do the same. The communicator is idle, and nothing else of it
  // is called until Poll has told of the end. FailedPrecondition as CheckUsable, and while a call
  // is under way.
  absl::Status BeginReshard(ncclComm_t communicator, std::vector<M2nTensor> tensors,
                            CUstream stream);
  // Begins to give back what it keeps for the communicator, whose work is complete.
  absl::Status BeginRelease(ncclComm_t communicator);
  // The result of the call that was begun, once; nothing while it goes on.
  std::optional<absl::Status> Poll();
  bool is_calling() const { return thread_.joinable(); }

  // Whether it keeps something for the communicator.
  bool keeps(ncclComm_t communicator) const {
    return communicator != nullptr && user_ == communicator;
  }
  // The communicator ends without BeginRelease.
  void Abandon(ncclComm_t communicator);

 private:
  absl::Status Run(absl::AnyInvocable<absl::Status()> call);
  absl::Status Reshard(ncclComm_t communicator, std::vector<M2nTensor>& tensors, CUstream stream);
  absl::Status Release();

  const DriverApi& driver_;
  const absl::StatusOr<std::unique_ptr<const M2nApi>> api_;
  const int ctas_max_;
  absl::Status failure_;
  ncclComm_t user_ = nullptr;
  ncclM2nHandle_t handle_ = nullptr;  // the thread's while a call goes on

  Mutex mutex_;
  std::optional<absl::Status> result_ ABSL_GUARDED_BY(mutex_);
  Thread thread_;  // the last member: it uses the others
};

}  // namespace crossmesh

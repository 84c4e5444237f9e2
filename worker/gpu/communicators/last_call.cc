#include "worker/gpu/communicators/last_call.h"

#include <utility>

namespace crossmesh {

LastCall::LastCall(absl::AnyInvocable<absl::Status() &&> call)
    : thread_("nccl-last-call", [this, call = std::move(call)]() mutable {
        absl::Status result = std::move(call)();
        MutexLock lock(mutex_);
        result_ = std::move(result);
      }) {}

std::optional<absl::Status> LastCall::result() const {
  MutexLock lock(mutex_);
  return result_;
}

}  // namespace crossmesh

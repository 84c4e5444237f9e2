#pragma once

#include "common/base/mutex.h"
#include "common/base/thread.h"

#include <optional>

#include <absl/functional/any_invocable.h>
#include <absl/status/status.h>

namespace crossmesh {

// The call that ends a communicator, on a thread of its own, because it may wait for other ranks,
// or for ever, and the event loop may not. Its destructor waits for it. Thread-safe.
class LastCall {
 public:
  explicit LastCall(absl::AnyInvocable<absl::Status() &&> call);
  LastCall(const LastCall&) = delete;
  LastCall& operator=(const LastCall&) = delete;

  // What the call came to; nothing while it runs.
  std::optional<absl::Status> result() const;

 private:
  mutable Mutex mutex_;
  std::optional<absl::Status> result_ ABSL_GUARDED_BY(mutex_);
  Thread thread_;  // the last member: it uses the others
};

}  // namespace crossmesh

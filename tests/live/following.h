#pragma once

#include "common/base/deadline.h"
#include "common/base/mutex.h"
#include "common/base/thread.h"

#include <functional>
#include <optional>
#include <utility>

#include <absl/functional/function_ref.h>
#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/str_cat.h>
#include <absl/time/time.h>

namespace crossmesh {

// An operation, or a run of a pipeline, that a client follows on a thread of its own, so that a
// test can do something in the middle. The destructor waits for its end. Thread-safe.
template <typename Followed>
class Following {
 public:
  using OnChange = absl::FunctionRef<void(const Followed&)>;
  using Follow = std::function<absl::StatusOr<Followed>(OnChange)>;

  explicit Following(Follow follow)
      : follow_(std::move(follow)), thread_("following", [this] { Run(); }) {}

  using Condition = absl::FunctionRef<bool(const Followed&)>;
  // What is followed, as soon as `holds` is true of it. DeadlineExceeded when that takes too long;
  // FailedPrecondition when it has ended and it is not.
  absl::StatusOr<Followed> WaitFor(Condition holds, absl::Duration limit) {
    const Deadline deadline(limit);
    MutexLock lock(mutex_);
    while (!holds(now_)) {
      if (result_.has_value()) {
        return absl::FailedPreconditionError(
            absl::StrCat("it ended before: ", result_->ok() ? (*result_)->ShortDebugString()
                                                            : result_->status().ToString()));
      }
      if (deadline.passed()) {
        return absl::DeadlineExceededError(
            absl::StrCat("after ", absl::FormatDuration(limit), ": ", now_.ShortDebugString()));
      }
      changed_.WaitFor(mutex_, deadline.left());
    }
    return now_;
  }
  bool HasEnded() const {
    MutexLock lock(mutex_);
    return result_.has_value();
  }
  // What the client got; waits for it.
  absl::StatusOr<Followed> Result() {
    thread_.Join();
    MutexLock lock(mutex_);
    return *result_;
  }

 private:
  void Run() {
    absl::StatusOr<Followed> result = follow_([this](const Followed& now) {
      MutexLock lock(mutex_);
      now_ = now;
      changed_.SignalAll();
    });
    MutexLock lock(mutex_);
    result_ = std::move(result);
    changed_.SignalAll();
  }

  const Follow follow_;
  mutable Mutex mutex_;
  CondVar changed_;
  Followed now_ ABSL_GUARDED_BY(mutex_);
  std::optional<absl::StatusOr<Followed>> result_ ABSL_GUARDED_BY(mutex_);
  Thread thread_;  // last: it uses the others
};

}  // namespace crossmesh

#pragma once

#include "client/client.h"
#include "common/base/mutex.h"
#include "common/base/thread.h"
#include "crossmesh/v1/operation_service.pb.h"
#include "crossmesh/v1/reshard.pb.h"

#include <optional>
#include <string>

#include <absl/functional/function_ref.h>
#include <absl/status/statusor.h>
#include <absl/time/time.h>

namespace crossmesh {

// An operation that a client executes on a thread of its own, so that a test can do something in
// the middle. The destructor waits for its end. Thread-safe.
class RunningReshard {
 public:
  RunningReshard(const std::string& controller_address, const v1::ReshardSpec& spec);

  using Condition = absl::FunctionRef<bool(const v1::Operation&)>;
  // The operation, as soon as `holds` is true of it. DeadlineExceeded when that takes too long;
  // FailedPrecondition when it has ended and it is not.
  absl::StatusOr<v1::Operation> WaitFor(Condition holds, absl::Duration limit);
  // Until its first message comes.
  absl::StatusOr<std::string> WaitForId();
  // All workers have accepted.
  absl::StatusOr<v1::Operation> WaitUntilRunning();
  bool HasEnded() const;
  // What the client got; waits for it.
  absl::StatusOr<v1::Operation> Result();

 private:
  void Run(const std::string& controller_address, const v1::ReshardSpec& spec);

  mutable Mutex mutex_;
  CondVar changed_;
  v1::Operation now_ ABSL_GUARDED_BY(mutex_);
  std::optional<absl::StatusOr<v1::Operation>> result_ ABSL_GUARDED_BY(mutex_);
  Thread thread_;
};

// Does it once, from start to end.
absl::StatusOr<v1::Operation> Execute(const std::string& controller_address,
                                      const v1::ReshardSpec& spec);

}  // namespace crossmesh

#include "tests/live/running_reshard.h"

#include "common/base/clock.h"
#include "common/base/status_macros.h"

#include <utility>

#include <absl/status/status.h>
#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

constexpr absl::Duration kStartMax = absl::Seconds(20);
constexpr absl::Duration kFollow = absl::Seconds(15);

}  // namespace

absl::StatusOr<v1::Operation> Execute(const std::string& controller_address,
                                      const v1::ReshardSpec& spec) {
  return RunningReshard(controller_address, spec).Result();
}

RunningReshard::RunningReshard(const std::string& controller_address, const v1::ReshardSpec& spec)
    : thread_("reshard", [this, controller_address, spec] { Run(controller_address, spec); }) {}

void RunningReshard::Run(const std::string& controller_address, const v1::ReshardSpec& spec) {
  const auto execute = [&]() -> absl::StatusOr<v1::Operation> {
    ASSIGN_OR_RETURN(Client client, Client::Connect(controller_address, {.follow_for = kFollow}));
    v1::ExecuteReshardRequest request;
    *request.mutable_spec() = spec;
    request.set_request_id(NewRequestId());
    return client.Execute(request, [this](const v1::Operation& operation) {
      MutexLock lock(mutex_);
      now_ = operation;
      changed_.SignalAll();
    });
  };
  absl::StatusOr<v1::Operation> result = execute();
  MutexLock lock(mutex_);
  result_ = std::move(result);
  changed_.SignalAll();
}

absl::StatusOr<v1::Operation> RunningReshard::WaitFor(Condition holds, absl::Duration limit) {
  const RealClock clock;
  const absl::Duration until = clock.Monotonic() + limit;
  MutexLock lock(mutex_);
  while (!holds(now_)) {
    if (result_.has_value()) {
      return absl::FailedPreconditionError(absl::StrCat(
          "the operation ended before: ",
          result_->ok() ? (*result_)->ShortDebugString() : result_->status().ToString()));
    }
    const absl::Duration left = until - clock.Monotonic();
    if (left <= absl::ZeroDuration()) {
      return absl::DeadlineExceededError(
          absl::StrCat("after ", absl::FormatDuration(limit), ": ", now_.ShortDebugString()));
    }
    changed_.WaitFor(mutex_, left);
  }
  return now_;
}

absl::StatusOr<std::string> RunningReshard::WaitForId() {
  ASSIGN_OR_RETURN(const v1::Operation operation,
                   WaitFor([](const v1::Operation& now) { return !now.id().empty(); }, kStartMax));
  return operation.id();
}

absl::StatusOr<v1::Operation> RunningReshard::WaitUntilRunning() {
  return WaitFor(
      [](const v1::Operation& now) { return now.state() == v1::OPERATION_STATE_RUNNING; },
      kStartMax);
}

bool RunningReshard::HasEnded() const {
  MutexLock lock(mutex_);
  return result_.has_value();
}

absl::StatusOr<v1::Operation> RunningReshard::Result() {
  thread_.Join();
  MutexLock lock(mutex_);
  return *result_;
}

}  // namespace crossmesh

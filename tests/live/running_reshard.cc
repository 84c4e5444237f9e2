#include "tests/live/running_reshard.h"

#include "client/client.h"
#include "common/base/status_macros.h"

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
    : Following([controller_address, spec](OnChange on_change) -> absl::StatusOr<v1::Operation> {
        ASSIGN_OR_RETURN(Client client,
                         Client::Connect(controller_address, {.follow_for = kFollow}));
        v1::ExecuteReshardRequest request;
        *request.mutable_spec() = spec;
        request.set_request_id(NewRequestId());
        return client.Execute(request, on_change);
      }) {}

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

}  // namespace crossmesh

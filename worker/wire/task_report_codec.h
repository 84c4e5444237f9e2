// What becomes of a task to and from the API's messages, in which the process of a GPU tells it to
// its worker, and a worker to its controller.

#pragma once

#include "crossmesh/v1/execution_service.pb.h"
#include "worker/executor/task.h"

#include <absl/status/statusor.h>

namespace crossmesh {

// Libraries have their say in a status, in any encoding: what is not UTF-8 is replaced.
v1::ExecuteResponse::DeviceDone ToProto(const DeviceReport& report);
// InvalidArgument, naming the field: bytes below 0, or a digest that is none.
absl::StatusOr<DeviceReport> FromProto(const v1::ExecuteResponse::DeviceDone& proto);

// What was measured: without worker and attempt, which the executor does not know, and without the
// devices, which are told apart.
v1::TaskReport ToProto(const TaskReport& report);
// Without key and devices.
TaskReport FromProto(const v1::TaskReport& proto);

}  // namespace crossmesh

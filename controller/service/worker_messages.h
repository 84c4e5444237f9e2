#pragma once

#include "controller/membership/worker_registry.h"
#include "crossmesh/v1/worker_service.pb.h"

#include <cstdint>

#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>

namespace crossmesh {

// What a worker says in its session, as the registry has it. InvalidArgument, naming worker and
// field: malformed, or more than SessionTable's bounds. Cost: linear in the message.
absl::StatusOr<WorkerRecord> RecordOf(const v1::WorkerSessionRequest::Register& message);
absl::StatusOr<WorkerRegistry::Heartbeat> HeartbeatOf(
    absl::string_view worker, const v1::WorkerSessionRequest::Heartbeat& message);

// What the session speaks. FailedPrecondition, with both versions: there is nothing in common.
absl::StatusOr<int32_t> ProtocolOf(const v1::WorkerSessionRequest::Register& message);

}  // namespace crossmesh

// Requests to the process of a GPU, as tests make them; without ids.

#pragma once

#include "common/communicators/communicator_key.h"
#include "common/wire/communicator_codec.h"
#include "common/wire/time_codec.h"
#include "crossmesh/v1/gpu_process.pb.h"
#include "worker/executor/task.h"
#include "worker/gpu/protocol/gpu_message.h"

#include <cstdint>
#include <string>

#include <absl/status/status.h>
#include <absl/strings/string_view.h>
#include <absl/time/time.h>

namespace crossmesh {

inline v1::GpuRequest PingRequest() {
  v1::GpuRequest request;
  request.mutable_ping();
  return request;
}

inline v1::GpuRequest MintCommunicatorIdRequest() {
  v1::GpuRequest request;
  request.mutable_mint_communicator_id();
  return request;
}

struct CommunicatorOrder {
  CommunicatorKey key;
  uint64_t ticket = 1;
  absl::Duration timeout = absl::Seconds(60);
};
inline v1::GpuRequest CreateCommunicatorRequest(const CommunicatorOrder& order,
                                                absl::string_view id) {
  v1::GpuRequest request;
  v1::CreateCommunicatorRequest& create = *request.mutable_create_communicator();
  *create.mutable_key() = ToProto(order.key);
  create.set_ticket(order.ticket);
  create.set_id(id.data(), id.size());
  *create.mutable_timeout() = ToProto(order.timeout);
  return request;
}

inline v1::GpuRequest DestroyCommunicatorRequest(const CommunicatorOrder& order) {
  v1::GpuRequest request;
  v1::DestroyCommunicatorRequest& destroy = *request.mutable_destroy_communicator();
  *destroy.mutable_key() = ToProto(order.key);
  destroy.set_ticket(order.ticket);
  *destroy.mutable_timeout() = ToProto(order.timeout);
  return request;
}

inline v1::GpuRequest StopCommunicatorRequest(const CommunicatorKey& key,
                                              absl::string_view reason) {
  v1::GpuRequest request;
  *request.mutable_stop_communicator()->mutable_key() = ToProto(key);
  request.mutable_stop_communicator()->set_reason(std::string(reason));
  return request;
}

inline v1::GpuRequest MeasureGpuRequest(const CommunicatorKey& key,
                                        absl::Duration timeout = absl::Seconds(60)) {
  v1::GpuRequest request;
  *request.mutable_measure_gpu()->mutable_key() = ToProto(key);
  *request.mutable_measure_gpu()->mutable_timeout() = ToProto(timeout);
  return request;
}

inline v1::GpuRequest CancelTaskRequest(const TaskKey& key, const absl::Status& cause) {
  v1::GpuRequest request;
  *request.mutable_cancel_task()->mutable_key() = ToProto(key);
  *request.mutable_cancel_task()->mutable_cause() = ToProto(cause);
  return request;
}

}  // namespace crossmesh

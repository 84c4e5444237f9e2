#pragma once

#include "crossmesh/v1/execution_service.pb.h"
#include "worker/tasks/start_request.h"
#include "worker/wire/piece_buffer.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include <absl/container/btree_map.h>
#include <absl/status/status.h>

namespace crossmesh {

class TaskTable;

// The protocol of one Execute call: a start, the part when it is needed, or an adoption, then
// orders for the task. Confined to the control loop.
class ExecuteCall {
 public:
  // `table` must outlive it.
  ExecuteCall(TaskTable& table, std::shared_ptr<TaskCaller> caller);

  // A message out of order or malformed ends the call with InvalidArgument; what the table refuses
  // ends it with the table's status.
  void OnRequest(const v1::ExecuteRequest& request);
  // No request comes any more.
  void OnGone();

 private:
  absl::Status Handle(const v1::ExecuteRequest& request);
  absl::Status OnStart(const v1::ExecuteRequest::Start& start);
  absl::Status OnAdopt(const v1::ExecuteRequest::Adopt& adopt);
  absl::Status OnPiece(const v1::Piece& piece);
  absl::Status OnPeerLost(const v1::ExecuteRequest::PeerLost& lost);
  // Says NeedPart when the table does.
  absl::Status Start();

  TaskTable& table_;
  const std::shared_ptr<TaskCaller> caller_;
  std::optional<TaskKey> key_;         // once there is a first message
  std::optional<StartRequest> start_;  // unless the task is adopted
  bool needs_part_ = false;
  bool over_ = false;
  PieceBuffer part_;
  // Peers of the task, and why, that were lost before it had its part.
  absl::btree_map<std::string, std::string> lost_early_;
};

}  // namespace crossmesh

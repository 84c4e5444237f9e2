#include "worker/tasks/execute_call.h"

#include "common/base/status_macros.h"
#include "worker/tasks/task_table.h"

#include <algorithm>
#include <span>
#include <utility>

#include <absl/strings/str_cat.h>

namespace crossmesh {

ExecuteCall::ExecuteCall(TaskTable& table, std::shared_ptr<TaskCaller> caller)
    : table_(table), caller_(std::move(caller)) {}

void ExecuteCall::OnRequest(const v1::ExecuteRequest& request) {
  if (over_) return;
  const absl::Status status = Handle(request);
  if (status.ok()) return;
  over_ = true;
  // The task goes on without this call, and another one may attach to it.
  if (key_.has_value()) table_.CallerGone(*key_, *caller_);
  caller_->End(status);
}

void ExecuteCall::OnGone() {
  if (key_.has_value()) table_.CallerGone(*key_, *caller_);
  over_ = true;
}

absl::Status ExecuteCall::Handle(const v1::ExecuteRequest& request) {
  using Message = v1::ExecuteRequest::MessageCase;
  const Message message = request.message_case();
  if (message == Message::kStart) return OnStart(request.start());
  if (message == Message::kAdopt) return OnAdopt(request.adopt());
  if (message == Message::kPiece) return OnPiece(request.piece());
  if (message == Message::kPeerLost) return OnPeerLost(request.peer_lost());
  if (!key_.has_value() || needs_part_) {
    return absl::InvalidArgumentError(absl::StrCat(
        "execute: expected ", needs_part_ ? "piece" : "start", ", found message ", message));
  }
  switch (message) {
    case Message::kCancel:
      table_.Cancel(*key_, *caller_, request.cancel().reason());
      break;
    case Message::kResolve: {
      const auto& devices = request.resolve().devices();
      table_.Resolve(*key_, *caller_, std::span(devices.data(), devices.size()),
                     request.resolve().commit());
      break;
    }
    case Message::kAcknowledge:
      table_.Acknowledge(*key_, *caller_);
      break;
    case Message::kStart:
    case Message::kAdopt:
    case Message::kPiece:
    case Message::kPeerLost:
    case Message::MESSAGE_NOT_SET:
      return absl::InvalidArgumentError("execute: expected a message, found none that is known");
  }
  return absl::OkStatus();
}

absl::Status ExecuteCall::OnStart(const v1::ExecuteRequest::Start& start) {
  if (key_.has_value()) {
    return absl::InvalidArgumentError("execute: expected one start, found a second one");
  }
  ASSIGN_OR_RETURN(start_, FromProto(start));
  key_ = start_->key;
  return Start();
}

absl::Status ExecuteCall::OnAdopt(const v1::ExecuteRequest::Adopt& adopt) {
  if (key_.has_value()) {
    return absl::InvalidArgumentError("execute: expected adopt first, found it after another");
  }
  ASSIGN_OR_RETURN(const AdoptRequest request, FromProto(adopt));
  key_ = request.key;
  return table_.Adopt(request, caller_);
}

absl::Status ExecuteCall::OnPiece(const v1::Piece& piece) {
  if (!needs_part_) {
    return absl::InvalidArgumentError("execute: found a piece that was not asked for");
  }
  ASSIGN_OR_RETURN(const std::optional<std::string> bytes,
                   part_.Add(piece, absl::StrCat("part ", start_->part.ToString())));
  if (!bytes.has_value()) return absl::OkStatus();
  needs_part_ = false;
  RETURN_IF_ERROR(table_.AddPart(start_->key, start_->part, *bytes));
  return Start();
}

// Comes at any time after the start. A task that has no part yet hears of it when it begins, and
// then only of its own peers, which bounds what is kept.
absl::Status ExecuteCall::OnPeerLost(const v1::ExecuteRequest::PeerLost& lost) {
  if (!key_.has_value()) {
    return absl::InvalidArgumentError("execute: expected start, found peer_lost");
  }
  if (!needs_part_) {
    table_.PeerLost(*key_, lost.worker(), lost.reason());
  } else if (std::ranges::find(start_->peers, lost.worker(), &StartRequest::Peer::worker) !=
             start_->peers.end()) {
    lost_early_.emplace(lost.worker(), lost.reason());
  }
  return absl::OkStatus();
}

absl::Status ExecuteCall::Start() {
  ASSIGN_OR_RETURN(const TaskTable::StartResult result, table_.Start(*start_, caller_));
  if (result == TaskTable::StartResult::kAttached) {
    for (const auto& [worker, reason] : lost_early_) table_.PeerLost(start_->key, worker, reason);
    lost_early_.clear();
    return absl::OkStatus();
  }
  needs_part_ = true;
  v1::ExecuteResponse response;
  response.mutable_need_part();
  caller_->Say(response);
  return absl::OkStatus();
}

}  // namespace crossmesh

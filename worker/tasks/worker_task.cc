#include "worker/tasks/worker_task.h"

#include "common/base/check.h"
#include "worker/wire/task_report_codec.h"

#include <algorithm>
#include <string>
#include <utility>

#include <absl/strings/str_cat.h>

namespace crossmesh {

WorkerTask::WorkerTask(StartRequest request, std::shared_ptr<const LaidOutPart> part,
                       TaskLeases leases, absl::Duration started)
    : request_(std::move(request)),
      part_(std::move(part)),
      started_(started),
      epoch_(request_.key.epoch),
      leases_(std::move(leases)) {
  for (const auto& [device, layout] : part_->destinations) destinations_[device];
}

bool WorkerTask::resolved() const {
  return std::all_of(destinations_.begin(), destinations_.end(), [](const auto& entry) {
    return entry.second.resolution != Resolution::kOpen;
  });
}

absl::StatusOr<TaskSpec> WorkerTask::Specify(absl::string_view worker) const {
  TaskSpec spec{.key = request_.key,
                .token_high = request_.token_high,
                .token_low = request_.token_low,
                .part = part_->prepared,
                .sources = leases_.BindSources(*part_),
                .destinations = leases_.BindDestinations(*part_),
                .communicators = request_.communicators,
                .checksums = request_.checksums,
                .deadline = request_.deadline,
                .stall_limit = request_.stall_limit};
  const auto device_count = std::ssize(part_->prepared->part().tensors().devices());
  for (const StartRequest::Peer& peer : request_.peers) {
    if (peer.worker == worker) continue;
    for (const DeviceRank device : peer.devices) {
      if (device < 0 || device >= device_count) {
        return absl::InvalidArgumentError(absl::StrCat("peer ", peer.worker,
                                                       ": expected device ranks from 0 to ",
                                                       device_count - 1, ", found ", device));
      }
      spec.peer_of_device[device] = static_cast<int32_t>(spec.peers.size());
    }
    spec.peers.push_back({.worker = peer.worker, .address = peer.data_address});
  }
  return spec;
}

void WorkerTask::Attach(std::shared_ptr<TaskCaller> caller) {
  EndCall(absl::AbortedError("another call has taken over the task"));
  caller_ = std::move(caller);
  for (const v1::ExecuteResponse& response : said_) caller_->Say(response);
}

void WorkerTask::Adopt(std::shared_ptr<TaskCaller> caller, uint64_t epoch) {
  epoch_ = epoch;
  Attach(std::move(caller));
}

void WorkerTask::Detach(const TaskCaller& caller) {
  if (caller_.get() == &caller) caller_ = nullptr;
}

void WorkerTask::EndCall(const absl::Status& status) {
  if (const std::shared_ptr<TaskCaller> caller = std::move(caller_)) caller->End(status);
}

void WorkerTask::OnAccepted() {
  CHECK(state_ == State::kStarting);
  state_ = State::kRunning;
  leases_.BeginWriting();
  v1::ExecuteResponse response;
  response.mutable_accepted();
  Say(std::move(response));
}

void WorkerTask::OnDeviceDone(const DeviceReport& report) {
  destinations_.at(report.device).outcome = report.status;
  v1::ExecuteResponse response;
  *response.mutable_device_done() = ToProto(report);
  Say(std::move(response));
}

void WorkerTask::OnSourcesReleased(std::span<const DeviceRank> devices, v1::TaskReport& report) {
  for (const DeviceRank device : devices) {
    leases_.BeginReleasing(device);
    report.add_released_sources(NameOf(device));
  }
}

void WorkerTask::OnReport(v1::TaskReport report, absl::Duration now) {
  CHECK(state_ == State::kRunning);
  state_ = State::kEnded;
  ended_ = now;
  const bool is_ok = report.code() == 0;
  v1::ExecuteResponse response;
  *response.mutable_report() = std::move(report);
  Say(std::move(response));
  for (const ResolveRequest& request : std::exchange(asked_early_, {})) ResolveNow(request);
  // Nothing is to be committed where nothing is received.
  if (is_ok) ConsumeIfCommitted();
}

void WorkerTask::ConsumeIfCommitted() {
  const bool is_committed = std::ranges::all_of(destinations_, [](const auto& entry) {
    return entry.second.resolution == Resolution::kCommitted;
  });
  if (is_committed) leases_.ConsumeSources();
}

void WorkerTask::Resolve(std::span<const int32_t> devices, bool commit) {
  ResolveRequest request{.devices = {devices.begin(), devices.end()}, .commit = commit};
  if (state_ == State::kEnded) {
    ResolveNow(request);
  } else if (std::find(asked_early_.begin(), asked_early_.end(), request) == asked_early_.end()) {
    // Once, however often it is asked.
    asked_early_.push_back(std::move(request));
  }
}

void WorkerTask::ResolveNow(const ResolveRequest& request) {
  v1::ExecuteResponse response;
  v1::ExecuteResponse::Resolved& answer = *response.mutable_resolved();
  answer.mutable_devices()->Assign(request.devices.begin(), request.devices.end());
  const bool nothing_new = resolved();
  for (const DeviceRank device : request.devices) {
    const absl::Status status = ResolveDevice(device, request.commit);
    if (status.ok()) continue;
    answer.set_code(static_cast<int32_t>(status.code()));
    answer.set_message(std::string(status.message()));
    break;
  }
  if (request.commit) ConsumeIfCommitted();
  // A question that is repeated for ever is answered for ever, but one answer is remembered.
  if (nothing_new && caller_ != nullptr) caller_->Say(response);
  if (!nothing_new) Say(std::move(response));
}

absl::Status WorkerTask::ResolveDevice(DeviceRank device, bool commit) {
  const auto found = destinations_.find(device);
  if (found == destinations_.end()) {
    return absl::InvalidArgumentError(
        absl::StrCat("resolve: expected devices that the task writes, found rank ", device));
  }
  Destination& destination = found->second;
  const Resolution wanted = commit ? Resolution::kCommitted : Resolution::kAbandoned;
  if (destination.resolution == wanted) return absl::OkStatus();
  if (destination.resolution != Resolution::kOpen) {
    return absl::FailedPreconditionError(
        absl::StrCat("device ", NameOf(device), ": was ", commit ? "abandoned" : "committed",
                     " before; expected to ", commit ? "commit" : "abandon", " it"));
  }
  if (commit && (!destination.outcome.has_value() || !destination.outcome->ok())) {
    return absl::FailedPreconditionError(absl::StrCat(
        "device ", NameOf(device), ": cannot be committed: ",
        destination.outcome.has_value() ? destination.outcome->message() : "it is not complete"));
  }
  destination.resolution = wanted;
  if (commit) return leases_.Commit(device);
  leases_.Abandon(device);
  UnsayDone(device);
  return absl::OkStatus();
}

// A controller that adopts the task must not take for whole what a former one has given up.
void WorkerTask::UnsayDone(DeviceRank device) {
  for (v1::ExecuteResponse& response : said_) {
    if (!response.has_device_done() || response.device_done().device() != device) continue;
    v1::ExecuteResponse::DeviceDone& done = *response.mutable_device_done();
    if (done.code() != 0) continue;
    done.set_code(static_cast<int32_t>(absl::StatusCode::kAborted));
    done.set_message(absl::StrCat("device ", NameOf(device), ": its bytes were abandoned"));
  }
}

void WorkerTask::AbandonRest() {
  CHECK(state_ == State::kEnded);
  for (auto& [device, destination] : destinations_) {
    if (destination.resolution != Resolution::kOpen) continue;
    destination.resolution = Resolution::kAbandoned;
    UnsayDone(device);
  }
  leases_.AbandonAll();
}

std::string WorkerTask::NameOf(DeviceRank device) const {
  return ToString(part_->prepared->part().tensors().devices()[device]);
}

void WorkerTask::Say(v1::ExecuteResponse response) {
  if (caller_ != nullptr) caller_->Say(response);
  said_.push_back(std::move(response));
}

}  // namespace crossmesh

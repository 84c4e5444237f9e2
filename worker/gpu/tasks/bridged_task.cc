#include "worker/gpu/tasks/bridged_task.h"

#include <algorithm>
#include <utility>

#include <absl/strings/str_cat.h>

namespace crossmesh {

BridgedTask::BridgedTask(const TaskKey& key, std::vector<std::unique_ptr<DeviceBridge>> bridges,
                         Executor& executor, TaskObserver& observer)
    : key_(key), executor_(executor), observer_(observer) {
  for (std::unique_ptr<DeviceBridge>& bridge : bridges) {
    devices_.push_back({.bridge = std::move(bridge)});
  }
}

void BridgedTask::Begin(absl::AnyInvocable<void()> over) {
  over_ = std::move(over);
  copies_open_ += static_cast<int32_t>(devices_.size());
  for (Bridged& device : devices_) {
    device.bridge->Load([this, &device](const absl::Status& status) { OnLoaded(device, status); });
  }
  EndIfOver();
}

void BridgedTask::OnLoaded(Bridged& device, const absl::Status& status) {
  device.is_loading = false;
  if (status.ok()) {
    executor_.SourceHere(key_, device.bridge->device());
  } else {
    Fail(device, status);
    executor_.Cancel(key_, failure_);
  }
  if (device.in_bounce_buffer.has_value()) Store(device);
  --copies_open_;
  EndIfOver();
}

void BridgedTask::OnDeviceDone(const TaskKey& /*key*/, const DeviceReport& report) {
  const auto found = std::ranges::find_if(
      devices_, [&](const Bridged& device) { return device.bridge->device() == report.device; });
  if (found == devices_.end() || !report.status.ok()) return Tell(report);
  found->in_bounce_buffer = report;
  if (!found->is_loading) Store(*found);
}

void BridgedTask::Store(Bridged& device) {
  ++copies_open_;
  device.bridge->Store([this, &device](const absl::Status& status) { OnStored(device, status); });
}

void BridgedTask::OnStored(const Bridged& device, const absl::Status& status) {
  if (status.ok()) {
    Tell(*device.in_bounce_buffer);
  } else {
    Fail(device, status);
    Tell({.device = device.bridge->device(), .status = failure_});
  }
  --copies_open_;
  EndIfOver();
}

void BridgedTask::Fail(const Bridged& device, const absl::Status& why) {
  failure_.Update(
      absl::Status(why.code(), absl::StrCat(device.bridge->name(), ": ", why.message())));
}

void BridgedTask::Tell(const DeviceReport& report) {
  told_.push_back(report);
  observer_.OnDeviceDone(key_, report);
}

void BridgedTask::OnTaskDone(const TaskReport& report) {
  report_ = report;
  EndIfOver();
}

void BridgedTask::EndIfOver() {
  if (!report_.has_value() || copies_open_ > 0 || over_ == nullptr) return;
  report_->devices = told_;
  report_->status.Update(failure_);
  observer_.OnTaskDone(*report_);
  std::exchange(over_, nullptr)();
}

void BridgedTask::CancelCopies(const absl::Status& why) {
  for (const Bridged& device : devices_) device.bridge->Cancel(why);
}

int64_t BridgedTask::moved_bytes() const {
  if (report_.has_value()) return report_->received_bytes + report_->copied_bytes;
  return executor_.MovedBytes(key_).value_or(0);
}

}  // namespace crossmesh

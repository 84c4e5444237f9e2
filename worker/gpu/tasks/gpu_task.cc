#include "worker/gpu/tasks/gpu_task.h"

#include "worker/executor/prepared_part.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

// GPUs work side by side: the time of the slowest is that of all.
void TakeLongest(const PhaseSeconds& of_one, PhaseSeconds& of_all) {
  of_all.bind = std::max(of_all.bind, of_one.bind);
  of_all.move = std::max(of_all.move, of_one.move);
  of_all.pack = std::max(of_all.pack, of_one.pack);
  of_all.unpack = std::max(of_all.unpack, of_one.unpack);
  of_all.checksum = std::max(of_all.checksum, of_one.checksum);
}

}  // namespace

GpuTask::GpuTask(TaskSpec spec, std::vector<std::unique_ptr<DeviceTask>> devices,
                 TaskObserver& observer)
    : spec_(std::move(spec)),
      devices_(std::move(devices)),
      observer_(observer),
      devices_left_(devices_.size()),
      report_{.key = spec_.key} {}

void GpuTask::Begin(absl::AnyInvocable<void()> over) {
  over_ = std::move(over);
  ReportIdleDevices();
  if (devices_.empty()) return End();
  for (const auto& device : devices_) {
    device->Begin([this, &of_one = *device](absl::StatusOr<TaskReport> report) {
      OnDeviceOver(of_one, std::move(report));
    });
  }
}

void GpuTask::OnDeviceOver(DeviceTask& device, absl::StatusOr<TaskReport> report) {
  if (!report.ok()) {
    report =
        Failed(device, absl::Status(report.status().code(),
                                    absl::StrCat(NameOf(device), ": ", report.status().message())));
  }
  Add(*report);
  if (!report->status.ok()) {
    // After any failure its communicator can no longer be used there.
    report_.broken_devices.push_back(device.device());
    CancelDevices(absl::UnavailableError(
        absl::StrCat("ended with ", NameOf(device), ": ", report->status.message())));
  }
  if (--devices_left_ == 0) End();
}

void GpuTask::End() {
  observer_.OnTaskDone(report_);
  over_();
}

void GpuTask::ReportIdleDevices() {
  for (const DeviceRank device : spec_.part->destinations()) {
    const bool is_busy = std::ranges::any_of(
        devices_, [device](const auto& task) { return task->device() == device; });
    if (!is_busy) Add({.devices = {{.device = device}}});
  }
}

void GpuTask::Add(const TaskReport& report) {
  report_.status.Update(report.status);
  for (const DeviceReport& device : report.devices) {
    report_.devices.push_back(device);
    observer_.OnDeviceDone(spec_.key, device);
  }
  report_.sent_bytes += report.sent_bytes;
  report_.received_bytes += report.received_bytes;
  report_.copied_bytes += report.copied_bytes;
  TakeLongest(report.seconds, report_.seconds);
  std::vector<std::string> libraries;
  std::ranges::set_union(report_.gpu_libraries, report.gpu_libraries,
                         std::back_inserter(libraries));
  report_.gpu_libraries = std::move(libraries);
  moved_bytes_ += report.received_bytes + report.copied_bytes;
}

TaskReport GpuTask::Failed(const DeviceTask& device, const absl::Status& why) const {
  TaskReport report{.key = spec_.key, .status = why};
  if (std::ranges::binary_search(spec_.part->destinations(), device.device())) {
    report.devices.push_back({.device = device.device(), .status = why});
  }
  return report;
}

void GpuTask::Cancel(const absl::Status& why) {
  report_.status.Update(why);
  CancelDevices(why);
}

void GpuTask::LosePeer(const std::string& worker, const absl::Status& why) {
  if (std::ranges::find(spec_.peers, worker, &TaskPeer::worker) == spec_.peers.end()) return;
  if (std::ranges::find(report_.lost_peers, worker) == report_.lost_peers.end()) {
    report_.lost_peers.push_back(worker);
  }
  const absl::Status loss(why.code(), absl::StrCat("worker ", worker, " is lost: ", why.message()));
  report_.first_loss.Update(loss);
  Cancel(loss);
}

void GpuTask::CancelDevices(const absl::Status& why) {
  for (const auto& device : devices_) device->Cancel(why);
}

int64_t GpuTask::moved_bytes() const {
  int64_t bytes = moved_bytes_;
  for (const auto& device : devices_) bytes += device->gpu().MovedBytes(spec_.key).value_or(0);
  return bytes;
}

std::string GpuTask::NameOf(const DeviceTask& device) const {
  return absl::StrCat("device ", ToString(device.gpu().device()), " (", device.gpu().gpu(), ")");
}

}  // namespace crossmesh

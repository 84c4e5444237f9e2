#include "worker/gpu/tasks/gpu_task_runner.h"

#include "common/base/status_macros.h"
#include "common/event_loop/event_loop.h"
#include "common/plan/worker_part.h"
#include "common/wire/communicator_codec.h"
#include "common/wire/time_codec.h"
#include "worker/executor/prepared_part.h"
#include "worker/gpu/devices/gpu_devices.h"
#include "worker/gpu/protocol/gpu_message.h"
#include "worker/gpu/tasks/device_task.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

#include <absl/functional/any_invocable.h>
#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

BoundTiles TilesOf(const absl::flat_hash_map<DeviceRank, BoundTiles>& tiles, DeviceRank device) {
  const auto found = tiles.find(device);
  return found == tiles.end() ? BoundTiles() : found->second;
}

// What is moved, and be it on one GPU, is moved over a communicator.
absl::StatusOr<TaskSpec::Communicator> CommunicatorOf(const TaskSpec& spec,
                                                      const WorkerPart& part) {
  const DeviceRank device = part.spec().devices.front();
  for (const TaskSpec::Communicator& communicator : spec.communicators) {
    const std::vector<DeviceRank>& devices = communicator.devices;
    if (std::ranges::find(devices, device) != devices.end()) return communicator;
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "device ", ToString(part.tensors().devices()[device]), ": expected a rank in one of ",
      spec.communicators.size(), " communicators, found none"));
}

// GPUs work side by side: the time of the slowest is that of all.
void TakeLongest(const PhaseSeconds& of_one, PhaseSeconds& of_all) {
  of_all.bind = std::max(of_all.bind, of_one.bind);
  of_all.move = std::max(of_all.move, of_one.move);
  of_all.pack = std::max(of_all.pack, of_one.pack);
  of_all.unpack = std::max(of_all.unpack, of_one.unpack);
  of_all.checksum = std::max(of_all.checksum, of_one.checksum);
}

}  // namespace

// One task of a worker on its GPUs: what they do of it, side by side, and what comes of that
// together. A GPU that fails ends what the others do, since a communicator is gone at its rank and
// they would wait for it in vain. Confined to the loop; destroyed when it is over.
class GpuTaskRunner::Task {
 public:
  // `spec` has been checked; `devices` are those that have something to do. `observer` must outlive
  // it.
  Task(TaskSpec spec, std::vector<std::unique_ptr<DeviceTask>> devices, TaskObserver& observer);
  Task(const Task&) = delete;
  Task& operator=(const Task&) = delete;

  // Once. `over` is called last of all, when the observer knows; this may not be destroyed there.
  void Begin(absl::AnyInvocable<void()> over);
  // These tell the observer nothing themselves; the ends of the devices' tasks do.
  void Cancel(const absl::Status& why);
  void LosePeer(const std::string& worker, const absl::Status& why);
  int64_t moved_bytes() const;

 private:
  // Destinations that have nothing to receive and nothing to copy.
  void ReportIdleDevices();
  void OnDeviceOver(DeviceTask& device, absl::StatusOr<TaskReport> report);
  // A report of one GPU becomes part of that of the task.
  void Add(const TaskReport& report);
  // What the process would have told, of a GPU without a report.
  TaskReport Failed(const DeviceTask& device, const absl::Status& why) const;
  void CancelDevices(const absl::Status& why);
  void End();

  const TaskSpec spec_;
  const std::vector<std::unique_ptr<DeviceTask>> devices_;
  TaskObserver& observer_;
  size_t devices_left_;
  int64_t moved_bytes_ = 0;  // of devices that are over
  TaskReport report_;
  absl::AnyInvocable<void()> over_;
};

GpuTaskRunner::Task::Task(TaskSpec spec, std::vector<std::unique_ptr<DeviceTask>> devices,
                          TaskObserver& observer)
    : spec_(std::move(spec)),
      devices_(std::move(devices)),
      observer_(observer),
      devices_left_(devices_.size()),
      report_{.key = spec_.key} {}

void GpuTaskRunner::Task::Begin(absl::AnyInvocable<void()> over) {
  over_ = std::move(over);
  ReportIdleDevices();
  // Without a device nothing would call OnDeviceOver.
  if (devices_.empty()) return End();
  // One that ends from inside cancels those that have not begun, which then end with its cause.
  for (const auto& device : devices_) {
    device->Begin([this, &of_one = *device](absl::StatusOr<TaskReport> report) {
      OnDeviceOver(of_one, std::move(report));
    });
  }
}

void GpuTaskRunner::Task::OnDeviceOver(DeviceTask& device, absl::StatusOr<TaskReport> report) {
  if (!report.ok()) {
    report = Failed(
        device, absl::Status(report.status().code(),
                             absl::StrCat(device.gpu().name(), ": ", report.status().message())));
  }
  Add(*report);
  if (!report->status.ok()) {
    // After any failure its communicator can no longer be used there.
    report_.broken_devices.push_back(device.device());
    CancelDevices(absl::UnavailableError(
        absl::StrCat("ended with ", device.gpu().name(), ": ", report->status.message())));
  }
  if (--devices_left_ == 0) End();
}

void GpuTaskRunner::Task::End() {
  observer_.OnTaskDone(report_);
  over_();
}

void GpuTaskRunner::Task::ReportIdleDevices() {
  for (const DeviceRank device : spec_.part->destinations()) {
    const bool is_busy = std::ranges::any_of(
        devices_, [device](const auto& task) { return task->device() == device; });
    if (!is_busy) Add({.devices = {{.device = device}}});
  }
}

void GpuTaskRunner::Task::Add(const TaskReport& report) {
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

TaskReport GpuTaskRunner::Task::Failed(const DeviceTask& device, const absl::Status& why) const {
  TaskReport report{.key = spec_.key, .status = why};
  if (std::ranges::binary_search(spec_.part->destinations(), device.device())) {
    report.devices.push_back({.device = device.device(), .status = why});
  }
  return report;
}

void GpuTaskRunner::Task::Cancel(const absl::Status& why) {
  report_.status.Update(why);
  CancelDevices(why);
}

void GpuTaskRunner::Task::LosePeer(const std::string& worker, const absl::Status& why) {
  if (std::ranges::find(spec_.peers, worker, &TaskPeer::worker) == spec_.peers.end()) return;
  if (std::ranges::find(report_.lost_peers, worker) == report_.lost_peers.end()) {
    report_.lost_peers.push_back(worker);
  }
  const absl::Status loss(why.code(), absl::StrCat("worker ", worker, " is lost: ", why.message()));
  report_.first_loss.Update(loss);
  Cancel(loss);
}

void GpuTaskRunner::Task::CancelDevices(const absl::Status& why) {
  for (const auto& device : devices_) device->Cancel(why);
}

int64_t GpuTaskRunner::Task::moved_bytes() const {
  int64_t bytes = moved_bytes_;
  for (const auto& device : devices_) bytes += device->gpu().MovedBytes(spec_.key).value_or(0);
  return bytes;
}

GpuTaskRunner::GpuTaskRunner(EventLoop& loop, GpuDevices& gpus) : loop_(loop), gpus_(gpus) {}

GpuTaskRunner::~GpuTaskRunner() = default;

absl::Status GpuTaskRunner::Start(TaskSpec spec, TaskObserver& observer) {
  const TaskKey key = spec.key;
  if (Find(key) != nullptr) {
    return absl::AlreadyExistsError(absl::StrCat(key.ToString(), " runs here"));
  }
  ASSIGN_OR_RETURN(std::vector<std::unique_ptr<DeviceTask>> devices, MakeDeviceTasks(spec));
  tasks_[key] = std::make_unique<Task>(std::move(spec), std::move(devices), observer);
  // The observer is not called from inside Start.
  loop_.Post([this, key] {
    tasks_.at(key)->Begin([this, key] {
      // Not from inside the task's own call.
      loop_.Post([this, key] { tasks_.erase(key); });
    });
  });
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<const GpuTaskRunner::Parts>> GpuTaskRunner::PartsByDevice(
    const WorkerPart& part) {
  const auto found = std::ranges::find(cut_, part.digest(), &CutParts::digest);
  if (found != cut_.end()) {
    cut_.splice(cut_.begin(), cut_, found);
    return found->parts;
  }
  auto parts = std::make_shared<Parts>();
  for (const DeviceRank device : part.spec().devices) {
    ASSIGN_OR_RETURN(WorkerPart cut, CutPart(part, {device}));
    parts->push_back(std::make_shared<const WorkerPart>(std::move(cut)));
  }
  cut_.push_front({.digest = part.digest(), .parts = parts});
  if (cut_.size() > kPartsMax) cut_.pop_back();
  return parts;
}

absl::StatusOr<std::vector<std::unique_ptr<DeviceTask>>> GpuTaskRunner::MakeDeviceTasks(
    const TaskSpec& spec) {
  ASSIGN_OR_RETURN(const auto parts, PartsByDevice(spec.part->part()));
  std::vector<std::unique_ptr<DeviceTask>> devices;
  for (const std::shared_ptr<const WorkerPart>& part : *parts) {
    // It moves nothing, so it need not even be a GPU.
    if (part->spec().relays.empty() && part->spec().copies.empty()) continue;
    const DeviceRank device = part->spec().devices.front();
    const DeviceId& id = part->tensors().devices()[device];
    GpuDevice* const gpu = gpus_.Find(id);
    if (gpu == nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat("device ", ToString(id), ": expected a GPU of this worker"));
    }
    ASSIGN_OR_RETURN(const TaskSpec::Communicator communicator, CommunicatorOf(spec, *part));
    v1::GpuRequest::RunTask task;
    *task.mutable_key() = ToProto(spec.key);
    task.set_checksums(spec.checksums);
    *task.mutable_communicator() = ToProto(communicator.key);
    task.mutable_devices()->Assign(communicator.devices.begin(), communicator.devices.end());
    *task.mutable_deadline() = ToProto(spec.deadline);
    *task.mutable_stall_limit() = ToProto(spec.stall_limit);
    devices.push_back(std::make_unique<DeviceTask>(
        *gpu, DeviceTask::Options{.part = part,
                                  .key = spec.key,
                                  .task = std::move(task),
                                  .sources = TilesOf(spec.sources, device),
                                  .destinations = TilesOf(spec.destinations, device)}));
  }
  return devices;
}

void GpuTaskRunner::Cancel(const TaskKey& key, absl::Status why) {
  if (Task* const task = Find(key)) task->Cancel(why);
}

void GpuTaskRunner::PeerLost(const TaskKey& key, absl::string_view worker, absl::Status why) {
  if (Task* const task = Find(key)) task->LosePeer(std::string(worker), why);
}

std::optional<int64_t> GpuTaskRunner::MovedBytes(const TaskKey& key) const {
  const Task* const task = Find(key);
  if (task == nullptr) return std::nullopt;
  return task->moved_bytes();
}

GpuTaskRunner::Task* GpuTaskRunner::Find(const TaskKey& key) const {
  const auto found = tasks_.find(key);
  return found == tasks_.end() ? nullptr : found->second.get();
}

}  // namespace crossmesh

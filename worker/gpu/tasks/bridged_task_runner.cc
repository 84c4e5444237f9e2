#include "worker/gpu/tasks/bridged_task_runner.h"

#include "common/base/status_macros.h"
#include "common/event_loop/event_loop.h"
#include "worker/executor/prepared_part.h"
#include "worker/gpu/devices/gpu_devices.h"
#include "worker/gpu/tasks/device_bridge.h"
#include "worker/memory/arena.h"

#include <algorithm>

#include <absl/functional/any_invocable.h>
#include <absl/strings/str_cat.h>
#include <absl/time/time.h>

namespace crossmesh {
namespace {

struct Uses {
  bool reads = false;   // its source tiles
  bool writes = false;  // its destination tiles
};

Uses UsesOf(const PreparedPart& part, DeviceRank device) {
  // Which tiles its steps read and fill, they say; there are arrays between them in any case.
  if (part.part().has_courses()) return {.reads = true, .writes = true};
  const bool copies =
      std::ranges::find(part.copies(), device, &PreparedPart::Copy::device) != part.copies().end();
  Uses uses = {.reads = copies, .writes = copies};
  for (const PreparedPart::Node& node : part.nodes()) {
    if (node.device == device) (node.root ? uses.reads : uses.writes) = true;
  }
  return uses;
}

}  // namespace

// One task in host memory in which bounce buffers stand for GPUs. Sources are
// loaded while it runs already, so that peers find the task there and send what they have; a
// destination is stored, and reported, when the executor has it complete. A source that cannot be
// loaded ends the task; one that cannot be stored is that device's failure. Confined to the loop;
// destroyed when it is over.
class BridgedTaskRunner::Task final : public TaskObserver {
 public:
  // Both references must outlive it.
  Task(const TaskKey& key, std::vector<std::unique_ptr<DeviceBridge>> bridges, const Ports& ports,
       TaskObserver& observer);
  Task(const Task&) = delete;
  Task& operator=(const Task&) = delete;

  // From now on, for copies; the executor has its own. Once.
  void SetDeadline(absl::Duration deadline);
  // Once, when the executor has started the task with this as its observer. `over` is called last
  // of all, when the observer knows; this may not be destroyed there.
  void Begin(absl::AnyInvocable<void()> over);
  // Of what goes on between GPUs and bounce buffers; the executor ends the rest.
  void CancelCopies(const absl::Status& why);
  int64_t moved_bytes() const;

  // Of the executor.
  void OnDeviceDone(const TaskKey& key, const DeviceReport& report) override;
  void OnTaskDone(const TaskReport& report) override;

 private:
  struct Bridged {
    std::unique_ptr<DeviceBridge> bridge;
    bool is_loading = true;
    std::optional<DeviceReport> in_bounce_buffer = std::nullopt;  // complete, and to be stored
  };

  void OnLoaded(Bridged& device, const absl::Status& status);
  void Store(Bridged& device);
  void OnStored(const Bridged& device, const absl::Status& status);
  // With the device's name.
  void Fail(const Bridged& device, const absl::Status& why);
  void Tell(const DeviceReport& report);
  // When nothing goes on any more.
  void EndIfOver();

  const TaskKey key_;
  std::vector<Bridged> devices_;  // never changes but for what is in it
  const Ports& ports_;
  TaskObserver& observer_;
  TimerId deadline_;
  int32_t copies_open_ = 0;           // loads and stores
  absl::Status failure_;              // the first of these
  std::vector<DeviceReport> told_;    // as the observer has heard it
  std::optional<TaskReport> report_;  // of the executor, once it has ended
  absl::AnyInvocable<void()> over_;
};

BridgedTaskRunner::Task::Task(const TaskKey& key,
                              std::vector<std::unique_ptr<DeviceBridge>> bridges,
                              const Ports& ports, TaskObserver& observer)
    : key_(key), ports_(ports), observer_(observer) {
  for (std::unique_ptr<DeviceBridge>& bridge : bridges) {
    devices_.push_back({.bridge = std::move(bridge)});
  }
}

void BridgedTaskRunner::Task::SetDeadline(absl::Duration deadline) {
  deadline_ = ports_.loop.RunAfter(deadline, [this, deadline] {
    CancelCopies(absl::DeadlineExceededError(
        absl::StrCat("deadline of ", absl::FormatDuration(deadline),
                     "; missing: copies between the GPU and host memory")));
  });
}

void BridgedTaskRunner::Task::Begin(absl::AnyInvocable<void()> over) {
  over_ = std::move(over);
  // All at once, before the first: a load may end from inside, and must not look like the last one.
  copies_open_ += static_cast<int32_t>(devices_.size());
  for (Bridged& device : devices_) {
    device.bridge->Load([this, &device](const absl::Status& status) { OnLoaded(device, status); });
  }
  EndIfOver();
}

void BridgedTaskRunner::Task::OnLoaded(Bridged& device, const absl::Status& status) {
  device.is_loading = false;
  if (status.ok()) {
    ports_.on_host.SourceHere(key_, device.bridge->device());
  } else {
    Fail(device, status);
    ports_.on_host.Cancel(key_, failure_);
  }
  // The store counts as open before the load no longer does, or the task would end between them.
  if (device.in_bounce_buffer.has_value()) Store(device);
  --copies_open_;
  EndIfOver();
}

void BridgedTaskRunner::Task::OnDeviceDone(const TaskKey& /*key*/, const DeviceReport& report) {
  const auto found = std::ranges::find_if(
      devices_, [&](const Bridged& device) { return device.bridge->device() == report.device; });
  if (found == devices_.end() || !report.status.ok()) return Tell(report);
  found->in_bounce_buffer = report;
  // A bridge does one thing at a time; OnLoaded goes on with what has to wait.
  if (!found->is_loading) Store(*found);
}

void BridgedTaskRunner::Task::Store(Bridged& device) {
  ++copies_open_;
  device.bridge->Store([this, &device](const absl::Status& status) { OnStored(device, status); });
}

void BridgedTaskRunner::Task::OnStored(const Bridged& device, const absl::Status& status) {
  if (status.ok()) {
    Tell(*device.in_bounce_buffer);
  } else {
    Fail(device, status);
    Tell({.device = device.bridge->device(), .status = failure_});
  }
  --copies_open_;
  EndIfOver();
}

void BridgedTaskRunner::Task::Fail(const Bridged& device, const absl::Status& why) {
  failure_.Update(
      absl::Status(why.code(), absl::StrCat(device.bridge->name(), ": ", why.message())));
}

void BridgedTaskRunner::Task::Tell(const DeviceReport& report) {
  told_.push_back(report);
  observer_.OnDeviceDone(key_, report);
}

void BridgedTaskRunner::Task::OnTaskDone(const TaskReport& report) {
  report_ = report;
  EndIfOver();
}

void BridgedTaskRunner::Task::EndIfOver() {
  if (!report_.has_value() || copies_open_ > 0 || over_ == nullptr) return;
  // What the executor says of devices is of their bounce buffers.
  report_->devices = told_;
  report_->status.Update(failure_);
  ports_.loop.Cancel(deadline_);
  for (const Bridged& device : devices_) device.bridge->Release();
  observer_.OnTaskDone(*report_);
  std::exchange(over_, nullptr)();
}

void BridgedTaskRunner::Task::CancelCopies(const absl::Status& why) {
  for (const Bridged& device : devices_) device.bridge->Cancel(why);
}

int64_t BridgedTaskRunner::Task::moved_bytes() const {
  if (report_.has_value()) return report_->received_bytes + report_->copied_bytes;
  return ports_.on_host.MovedBytes(key_).value_or(0);
}

BridgedTaskRunner::BridgedTaskRunner(Ports ports, const Options& options)
    : ports_(std::move(ports)), options_(options) {}

BridgedTaskRunner::~BridgedTaskRunner() = default;

absl::Status BridgedTaskRunner::Start(TaskSpec spec, TaskObserver& observer) {
  const TaskKey key = spec.key;
  if (tasks_.contains(key)) {
    return absl::AlreadyExistsError(absl::StrCat(key.ToString(), " runs here"));
  }
  ASSIGN_OR_RETURN(std::vector<std::unique_ptr<DeviceBridge>> bridges, BridgeGpus(spec));
  if (bridges.empty()) return ports_.on_host.Start(std::move(spec), observer);
  const absl::Duration deadline = spec.deadline;
  auto task = std::make_unique<Task>(key, std::move(bridges), ports_, observer);
  RETURN_IF_ERROR(ports_.on_host.Start(std::move(spec), *task));
  task->SetDeadline(deadline);
  tasks_[key] = std::move(task);
  // The observer is not called from inside Start.
  ports_.loop.Post([this, key] {
    tasks_.at(key)->Begin([this, key] {
      // Not from inside the task's own call.
      ports_.loop.Post([this, key] { tasks_.erase(key); });
    });
  });
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::unique_ptr<DeviceBridge>>> BridgedTaskRunner::BridgeGpus(
    TaskSpec& spec) {
  const WorkerPart& part = spec.part->part();
  std::vector<std::unique_ptr<DeviceBridge>> bridges;
  for (const DeviceRank device : part.spec().devices) {
    GpuDevice* const gpu = ports_.gpus.Find(part.tensors().devices()[device]);
    if (gpu == nullptr) continue;
    ASSIGN_OR_RETURN(std::unique_ptr<DeviceBridge> bridge, Bridge(*gpu, device, spec));
    if (bridge != nullptr) bridges.push_back(std::move(bridge));
  }
  return bridges;
}

absl::StatusOr<std::unique_ptr<DeviceBridge>> BridgedTaskRunner::Bridge(GpuDevice& gpu,
                                                                        DeviceRank device,
                                                                        TaskSpec& spec) {
  const Uses uses = UsesOf(*spec.part, device);
  if (!uses.reads && !uses.writes) return nullptr;
  auto bridge = std::make_unique<DeviceBridge>(
      gpu, DeviceBridge::Options{.key = spec.key,
                                 .device = device,
                                 .checksums = spec.checksums,
                                 .overwrites_sources = spec.part->part().has_courses(),
                                 .deadline = spec.deadline});
  const auto make_bounce_buffer = [this](ByteCount bytes) { return MakeBounceBuffer(bytes); };
  // The executor says what is missing.
  if (const auto tiles = spec.sources.find(device); uses.reads && tiles != spec.sources.end()) {
    ASSIGN_OR_RETURN(
        tiles->second,
        bridge->BounceBufferTiles(Side::kSource, tiles->second,
                                  spec.part->tiles(Side::kSource, device), make_bounce_buffer));
    spec.awaited_sources.insert(device);
  }
  if (const auto tiles = spec.destinations.find(device);
      uses.writes && tiles != spec.destinations.end()) {
    ASSIGN_OR_RETURN(tiles->second,
                     bridge->BounceBufferTiles(Side::kDestination, tiles->second,
                                               spec.part->tiles(Side::kDestination, device),
                                               make_bounce_buffer));
  }
  return bridge;
}

absl::StatusOr<std::shared_ptr<Arena>> BridgedTaskRunner::MakeBounceBuffer(ByteCount bytes) {
  const int64_t max = options_.bounce_bytes_max.value();
  if (bytes.value() > max - *bounce_bytes_) {
    return absl::ResourceExhaustedError(
        absl::StrCat("bounce buffers of GPUs in host memory: expected at most ", max,
                     " bytes, found ", *bounce_bytes_, " in use and ", bytes.value(), " wanted"));
  }
  ASSIGN_OR_RETURN(std::shared_ptr<Arena> arena, ports_.make_arena(bytes));
  *bounce_bytes_ += bytes.value();
  Arena* const bounce_buffer = arena.get();
  return std::shared_ptr<Arena>(bounce_buffer,
                                [used = bounce_bytes_, bytes, arena = std::move(arena)](
                                    Arena* /*bounce_buffer*/) { *used -= bytes.value(); });
}

void BridgedTaskRunner::Cancel(const TaskKey& key, absl::Status why) {
  if (const auto found = tasks_.find(key); found != tasks_.end()) {
    found->second->CancelCopies(why);
  }
  ports_.on_host.Cancel(key, std::move(why));
}

std::optional<int64_t> BridgedTaskRunner::MovedBytes(const TaskKey& key) const {
  const auto found = tasks_.find(key);
  if (found == tasks_.end()) return ports_.on_host.MovedBytes(key);
  return found->second->moved_bytes();
}

}  // namespace crossmesh

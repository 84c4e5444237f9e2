#include "worker/gpu/tasks/mixed_task_runner.h"

#include "common/base/status_macros.h"
#include "common/event_loop/event_loop.h"
#include "common/plan/worker_part.h"
#include "worker/executor/prepared_part.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <absl/functional/any_invocable.h>
#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

// Of a half without both there is nothing to run, and nothing to report.
bool HasWork(const PreparedPart& half) {
  return half.part().moves_bytes() || !half.destinations().empty();
}

// Halves go side by side: the time of the slower is that of both.
void TakeLonger(const PhaseSeconds& of_half, PhaseSeconds& of_task) {
  of_task.bind = std::max(of_task.bind, of_half.bind);
  of_task.move = std::max(of_task.move, of_half.move);
  of_task.pack = std::max(of_task.pack, of_half.pack);
  of_task.unpack = std::max(of_task.unpack, of_half.unpack);
  of_task.checksum = std::max(of_task.checksum, of_half.checksum);
  of_task.first_byte = std::max(of_task.first_byte, of_half.first_byte);
}

// Each device is in one of the halves' reports; only one half has links, or GPUs' libraries.
void Add(const TaskReport& half, TaskReport& task) {
  task.status.Update(half.status);
  task.devices.insert(task.devices.end(), half.devices.begin(), half.devices.end());
  for (const std::string& peer : half.lost_peers) {
    if (std::ranges::find(task.lost_peers, peer) == task.lost_peers.end()) {
      task.lost_peers.push_back(peer);
    }
  }
  task.first_loss.Update(half.first_loss);
  task.sent_bytes += half.sent_bytes;
  task.received_bytes += half.received_bytes;
  task.copied_bytes += half.copied_bytes;
  TakeLonger(half.seconds, task.seconds);
  task.links.insert(task.links.end(), half.links.begin(), half.links.end());
  task.broken_devices.insert(task.broken_devices.end(), half.broken_devices.begin(),
                             half.broken_devices.end());
  task.gpu_libraries.insert(task.gpu_libraries.end(), half.gpu_libraries.begin(),
                            half.gpu_libraries.end());
}

// Only these take part in the half over GPUs: without the others it goes on.
std::vector<TaskPeer> PeersWithGpus(const TaskSpec& spec) {
  std::vector<bool> has_gpus(spec.peers.size());
  for (const TaskSpec::Communicator& communicator : spec.communicators) {
    for (const DeviceRank device : communicator.devices) {
      const auto peer = spec.peer_of_device.find(device);
      if (peer != spec.peer_of_device.end()) has_gpus[peer->second] = true;
    }
  }
  std::vector<TaskPeer> peers;
  for (size_t i = 0; i < spec.peers.size(); ++i) {
    if (has_gpus[i]) peers.push_back(spec.peers[i]);
  }
  return peers;
}

// What a half that cannot be started comes to.
TaskReport NotStarted(const TaskKey& key, const PreparedPart& half, const absl::Status& why) {
  TaskReport report{.key = key, .status = why};
  for (const DeviceRank device : half.destinations()) {
    report.devices.push_back({.device = device, .status = why});
  }
  return report;
}

}  // namespace

// Both halves of a task. Confined to the loop; destroyed when both are over.
class MixedTaskRunner::Task {
 public:
  // `observer` must outlive it. `over` is called last of all, when the observer knows; this may not
  // be destroyed there.
  Task(EventLoop& loop, const TaskKey& key, TaskObserver& observer, absl::AnyInvocable<void()> over)
      : loop_(loop), observer_(observer), over_(std::move(over)), report_{.key = key} {}
  Task(const Task&) = delete;
  Task& operator=(const Task&) = delete;

  // Once, with both halves of the part in specifications of their own. An error: nothing runs.
  absl::Status Start(TaskRunner& by_host, TaskSpec host_spec, TaskRunner& over_gpus,
                     TaskSpec gpu_spec);
  void Cancel(const absl::Status& why);
  void LosePeer(absl::string_view worker, const absl::Status& why);
  int64_t moved_bytes() const;

 private:
  // One of the two, as its runner's observer.
  struct Half final : TaskObserver {
    Half(Task& of, absl::string_view named) : task(of), name(named) {}
    void OnDeviceDone(const TaskKey& key, const DeviceReport& report) override {
      task.observer_.OnDeviceDone(key, report);
    }
    void OnTaskDone(const TaskReport& report) override { task.OnHalfDone(*this, report); }

    Task& task;
    const absl::string_view name;
    TaskRunner* runner = nullptr;  // null: it does not run, or not any more
  };

  absl::Status StartHalf(Half& half, TaskRunner& runner, TaskSpec spec);
  void OnHalfDone(Half& half, const TaskReport& report);

  EventLoop& loop_;
  TaskObserver& observer_;
  absl::AnyInvocable<void()> over_;
  Half by_host_{*this, "the half by host memory"};
  Half over_gpus_{*this, "the half over GPUs"};
  TaskReport report_;  // of what is over
  int halves_left_ = 0;
};

absl::Status MixedTaskRunner::Task::Start(TaskRunner& by_host, TaskSpec host_spec,
                                          TaskRunner& over_gpus, TaskSpec gpu_spec) {
  const bool has_gpus = HasWork(*gpu_spec.part);
  // A worker without a part in either still answers.
  const bool has_host = !has_gpus || HasWork(*host_spec.part);
  if (has_host) RETURN_IF_ERROR(StartHalf(by_host_, by_host, std::move(host_spec)));
  if (!has_gpus) return absl::OkStatus();
  const TaskReport not_started = NotStarted(gpu_spec.key, *gpu_spec.part, absl::OkStatus());
  absl::Status started = StartHalf(over_gpus_, over_gpus, std::move(gpu_spec));
  if (started.ok() || !has_host) return started;
  // The other half runs already; observers are not called from inside Start.
  ++halves_left_;
  loop_.Post([this, started, report = not_started]() mutable {
    report.status = started;
    for (DeviceReport& device : report.devices) {
      device.status = started;
      observer_.OnDeviceDone(report.key, device);
    }
    OnHalfDone(over_gpus_, report);
  });
  return absl::OkStatus();
}

absl::Status MixedTaskRunner::Task::StartHalf(Half& half, TaskRunner& runner, TaskSpec spec) {
  RETURN_IF_ERROR(runner.Start(std::move(spec), half));
  half.runner = &runner;
  ++halves_left_;
  return absl::OkStatus();
}

void MixedTaskRunner::Task::OnHalfDone(Half& half, const TaskReport& report) {
  half.runner = nullptr;
  Add(report, report_);
  if (!report.status.ok()) {
    Cancel(absl::UnavailableError(
        absl::StrCat("ended with ", half.name, ": ", report.status.message())));
  }
  if (--halves_left_ > 0) return;
  observer_.OnTaskDone(report_);
  over_();
}

void MixedTaskRunner::Task::Cancel(const absl::Status& why) {
  for (Half* const half : {&by_host_, &over_gpus_}) {
    if (half->runner != nullptr) half->runner->Cancel(report_.key, why);
  }
}

void MixedTaskRunner::Task::LosePeer(absl::string_view worker, const absl::Status& why) {
  for (Half* const half : {&by_host_, &over_gpus_}) {
    if (half->runner != nullptr) half->runner->PeerLost(report_.key, worker, why);
  }
}

int64_t MixedTaskRunner::Task::moved_bytes() const {
  int64_t bytes = report_.received_bytes + report_.copied_bytes;
  for (const Half* const half : {&by_host_, &over_gpus_}) {
    if (half->runner != nullptr) bytes += half->runner->MovedBytes(report_.key).value_or(0);
  }
  return bytes;
}

MixedTaskRunner::MixedTaskRunner(EventLoop& loop, TaskRunner& over_gpus, TaskRunner& by_host)
    : loop_(loop), over_gpus_(over_gpus), by_host_(by_host) {}

MixedTaskRunner::~MixedTaskRunner() = default;

absl::StatusOr<MixedTaskRunner::Halves> MixedTaskRunner::HalvesOf(const PreparedPart& part) {
  const auto found = std::ranges::find(cut_, part.part().digest(), &Halves::digest);
  if (found != cut_.end()) {
    cut_.splice(cut_.begin(), cut_, found);
    return *found;
  }
  const auto half = [&](Medium medium) -> absl::StatusOr<std::shared_ptr<const PreparedPart>> {
    ASSIGN_OR_RETURN(WorkerPart cut, CutByMedium(part.part(), medium));
    return PreparedPart::Create(std::make_shared<const WorkerPart>(std::move(cut)));
  };
  Halves halves{.digest = part.part().digest()};
  ASSIGN_OR_RETURN(halves.over_gpus, half(Medium::kGpus));
  ASSIGN_OR_RETURN(halves.by_host, half(Medium::kHost));
  cut_.push_front(halves);
  if (cut_.size() > kPartsMax) cut_.pop_back();
  return halves;
}

absl::Status MixedTaskRunner::Start(TaskSpec spec, TaskObserver& observer) {
  if (spec.part->part().spec().over_gpus.empty() || spec.communicators.empty()) {
    return over_gpus_.Start(std::move(spec), observer);
  }
  const TaskKey key = spec.key;
  if (Find(key) != nullptr) {
    return absl::AlreadyExistsError(absl::StrCat(key.ToString(), " runs here"));
  }
  ASSIGN_OR_RETURN(const Halves halves, HalvesOf(*spec.part));
  TaskSpec gpu_spec = spec;
  gpu_spec.part = halves.over_gpus;
  gpu_spec.peers = PeersWithGpus(spec);
  gpu_spec.peer_of_device.clear();  // NCCL has connections of its own
  spec.part = halves.by_host;
  spec.communicators.clear();
  auto task = std::make_unique<Task>(loop_, key, observer, [this, key] {
    // Not from inside the task's own call.
    loop_.Post([this, key] { tasks_.erase(key); });
  });
  RETURN_IF_ERROR(task->Start(by_host_, std::move(spec), over_gpus_, std::move(gpu_spec)));
  tasks_[key] = std::move(task);
  return absl::OkStatus();
}

void MixedTaskRunner::Cancel(const TaskKey& key, absl::Status why) {
  if (Task* const task = Find(key)) return task->Cancel(why);
  over_gpus_.Cancel(key, std::move(why));
}

void MixedTaskRunner::PeerLost(const TaskKey& key, absl::string_view worker, absl::Status why) {
  if (Task* const task = Find(key)) return task->LosePeer(worker, why);
  over_gpus_.PeerLost(key, worker, std::move(why));
}

std::optional<int64_t> MixedTaskRunner::MovedBytes(const TaskKey& key) const {
  const Task* const task = Find(key);
  return task == nullptr ? over_gpus_.MovedBytes(key) : task->moved_bytes();
}

MixedTaskRunner::Task* MixedTaskRunner::Find(const TaskKey& key) const {
  const auto found = tasks_.find(key);
  return found == tasks_.end() ? nullptr : found->second.get();
}

}  // namespace crossmesh

#include "worker/gpu/tasks/gpu_task_runner.h"

#include "common/base/status_macros.h"
#include "common/event_loop/event_loop.h"
#include "common/plan/worker_part.h"
#include "common/wire/communicator_codec.h"
#include "common/wire/time_codec.h"
#include "common/wire/worker_part_codec.h"
#include "worker/executor/prepared_part.h"
#include "worker/gpu/devices/gpu_devices.h"
#include "worker/gpu/protocol/gpu_message.h"

#include <algorithm>
#include <cstdint>
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

int64_t TileBytes(const TensorTable& tensors, Side side, int32_t tensor, DeviceRank device) {
  const int32_t group = tensors.group_of_tensor()[tensor];
  return Volume(tensors.TileOf(side, group, device)) * tensors.ItemBytesOf(side, group);
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

// What one GPU has to do of a task.
//
//   WAITING --all memory is made--> RUNNING --its process has answered--> OVER
//   any --an error, a cancel before it runs--> OVER
struct GpuTaskRunner::Share {
  enum class State : uint8_t { kWaiting, kRunning, kOver };

  GpuDevice& gpu;
  const std::shared_ptr<const WorkerPart> part;  // of this device alone
  v1::GpuRequest::RunTask task;                  // without the places of tiles until it runs
  const BoundTiles sources;
  const BoundTiles destinations;
  State state = State::kWaiting;
  absl::Status cancelled = absl::OkStatus();  // OK: it was not
  int64_t moved_bytes = 0;                    // while it runs

  DeviceRank device() const { return part->spec().devices.front(); }
};

// One task of a worker on its GPUs: what they do of it, side by side, and what comes of that
// together. A GPU that fails ends what the others do, since a communicator is gone at its rank and
// they would wait for it in vain. Confined to the loop; destroyed when it is over.
class GpuTaskRunner::Task {
 public:
  // `spec` has been checked; `shares` are of the GPUs that have something to do. `observer` must
  // outlive it.
  Task(TaskSpec spec, std::vector<std::unique_ptr<Share>> shares, TaskObserver& observer);
  Task(const Task&) = delete;
  Task& operator=(const Task&) = delete;

  // Once. `over` is called last of all, when the observer knows; this may not be destroyed there.
  void Begin(absl::AnyInvocable<void()> over);
  // These tell the observer nothing themselves; the ends of the shares do.
  void Cancel(const absl::Status& why);
  void LosePeer(const std::string& worker, const absl::Status& why);
  int64_t moved_bytes() const;

 private:
  using Places = std::vector<TilePlace>;

  // Goes on with a share when it can, which is known to be so when memory was made.
  void AwaitMemory(Share& share);
  // Where all of them lie; nothing while memory is being made, which then calls AwaitMemory.
  absl::StatusOr<std::optional<Places>> Locate(Share& share, Side side);
  // `part`: as RunTask has it.
  void Run(Share& share, std::string part);
  void OnAnswer(Share& share, const absl::StatusOr<GpuProcess::Reply>& reply);
  // What is not complete of it ends with `why`, soon.
  void CancelShare(Share& share, const absl::Status& why) const;
  // Destinations that have nothing to receive and nothing to copy.
  void ReportIdleDevices();
  void OnOver(Share& share, absl::StatusOr<TaskReport> report);
  // A report of one GPU becomes part of that of the task.
  void Add(const TaskReport& report);
  // What the process would have told, of a GPU without a report.
  TaskReport Failed(const Share& share, const absl::Status& why) const;
  void CancelShares(const absl::Status& why);
  void End();

  const TaskSpec spec_;
  const std::vector<std::unique_ptr<Share>> shares_;
  TaskObserver& observer_;
  size_t shares_left_;
  int64_t moved_bytes_ = 0;  // of shares that are over
  TaskReport report_;
  absl::AnyInvocable<void()> over_;
};

GpuTaskRunner::Task::Task(TaskSpec spec, std::vector<std::unique_ptr<Share>> shares,
                          TaskObserver& observer)
    : spec_(std::move(spec)),
      shares_(std::move(shares)),
      observer_(observer),
      shares_left_(shares_.size()),
      report_{.key = spec_.key} {}

void GpuTaskRunner::Task::Begin(absl::AnyInvocable<void()> over) {
  over_ = std::move(over);
  ReportIdleDevices();
  // Without a share nothing would call OnOver.
  if (shares_.empty()) return End();
  // One that ends from inside cancels those that have not begun, which then end with its cause.
  for (const auto& share : shares_) AwaitMemory(*share);
}

void GpuTaskRunner::Task::AwaitMemory(Share& share) {
  if (!share.cancelled.ok()) return OnOver(share, share.cancelled);
  const absl::StatusOr<std::optional<Places>> sources = Locate(share, Side::kSource);
  if (!sources.ok()) return OnOver(share, sources.status());
  if (!sources->has_value()) return;
  const absl::StatusOr<std::optional<Places>> destinations = Locate(share, Side::kDestination);
  if (!destinations.ok()) return OnOver(share, destinations.status());
  if (!destinations->has_value()) return;
  *share.task.mutable_sources() = ToProto(**sources);
  *share.task.mutable_destinations() = ToProto(**destinations);
  Run(share, "");
}

absl::StatusOr<std::optional<GpuTaskRunner::Task::Places>> GpuTaskRunner::Task::Locate(Share& share,
                                                                                       Side side) {
  const BoundTiles& tiles = side == Side::kSource ? share.sources : share.destinations;
  Places places(tiles.tensor.size());
  for (size_t tensor = 0; tensor < tiles.tensor.size(); ++tensor) {
    if (tiles.tensor[tensor] == nullptr) continue;
    ASSIGN_OR_RETURN(const StorageArenas::Found found,
                     share.gpu.arenas().Find(tiles.tensor[tensor]));
    ASSIGN_OR_RETURN(const bool is_made, found.memory->is_made());
    if (!is_made) {
      found.memory->WhenMade(
          [this, &share](const DeviceMemory::Made& /*made*/) { AwaitMemory(share); });
      return std::nullopt;
    }
    if (found.memory->kind() == DeviceMemory::Kind::kLent) {
      const int64_t bytes =
          TileBytes(share.part->tensors(), side, static_cast<int32_t>(tensor), share.device());
      RETURN_IF_ERROR(StorageArenas::CheckHolds(found, ByteCount(bytes)));
    }
    places[tensor] = found.place;
  }
  return places;
}

void GpuTaskRunner::Task::Run(Share& share, std::string part) {
  share.state = Share::State::kRunning;
  v1::GpuRequest request;
  *request.mutable_run_task() = share.task;
  request.mutable_run_task()->set_part(std::move(part));
  share.gpu.process().Call(
      std::move(request), UniqueFd(),
      {.done = [this,
                &share](const absl::StatusOr<GpuProcess::Reply>& reply) { OnAnswer(share, reply); },
       .progress = [&share](int64_t moved_bytes) { share.moved_bytes = moved_bytes; }});
}

void GpuTaskRunner::Task::OnAnswer(Share& share, const absl::StatusOr<GpuProcess::Reply>& reply) {
  if (!reply.ok()) return OnOver(share, reply.status());
  if (reply->answer.has_report()) {
    return OnOver(share, ReportFromProto(reply->answer.report()));
  }
  // The process knew no such task when it was told of the cancel.
  if (!share.cancelled.ok()) return OnOver(share, share.cancelled);
  Run(share, ToProto(*share.part).SerializeAsString());
}

void GpuTaskRunner::Task::CancelShare(Share& share, const absl::Status& why) const {
  if (share.state == Share::State::kOver || !share.cancelled.ok()) return;
  share.cancelled = why;
  // What waits finds the cause when it goes on; what runs answers with it.
  if (share.state == Share::State::kRunning) share.gpu.CancelTask(spec_.key, why);
}

void GpuTaskRunner::Task::OnOver(Share& share, absl::StatusOr<TaskReport> report) {
  share.state = Share::State::kOver;
  share.moved_bytes = 0;  // the report has them
  if (!report.ok()) {
    report = Failed(share,
                    absl::Status(report.status().code(),
                                 absl::StrCat(share.gpu.name(), ": ", report.status().message())));
  }
  Add(*report);
  if (!report->status.ok()) {
    // After any failure its communicator can no longer be used there.
    report_.broken_devices.push_back(share.device());
    CancelShares(absl::UnavailableError(
        absl::StrCat("ended with ", share.gpu.name(), ": ", report->status.message())));
  }
  if (--shares_left_ == 0) End();
}

void GpuTaskRunner::Task::End() {
  observer_.OnTaskDone(report_);
  over_();
}

void GpuTaskRunner::Task::ReportIdleDevices() {
  for (const DeviceRank device : spec_.part->destinations()) {
    const bool is_busy = std::ranges::any_of(
        shares_, [device](const auto& share) { return share->device() == device; });
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

TaskReport GpuTaskRunner::Task::Failed(const Share& share, const absl::Status& why) const {
  TaskReport report{.key = spec_.key, .status = why};
  if (std::ranges::binary_search(spec_.part->destinations(), share.device())) {
    report.devices.push_back({.device = share.device(), .status = why});
  }
  return report;
}

void GpuTaskRunner::Task::Cancel(const absl::Status& why) {
  report_.status.Update(why);
  CancelShares(why);
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

void GpuTaskRunner::Task::CancelShares(const absl::Status& why) {
  for (const auto& share : shares_) CancelShare(*share, why);
}

int64_t GpuTaskRunner::Task::moved_bytes() const {
  int64_t bytes = moved_bytes_;
  for (const auto& share : shares_) bytes += share->moved_bytes;
  return bytes;
}

GpuTaskRunner::GpuTaskRunner(EventLoop& loop, GpuDevices& gpus, TaskRunner& on_host)
    : loop_(loop), gpus_(gpus), on_host_(on_host) {}

GpuTaskRunner::~GpuTaskRunner() = default;

absl::Status GpuTaskRunner::Start(TaskSpec spec, TaskObserver& observer) {
  if (spec.communicators.empty()) return on_host_.Start(std::move(spec), observer);
  const TaskKey key = spec.key;
  if (Find(key) != nullptr) {
    return absl::AlreadyExistsError(absl::StrCat(key.ToString(), " runs here"));
  }
  ASSIGN_OR_RETURN(std::vector<std::unique_ptr<Share>> shares, MakeShares(spec));
  tasks_[key] = std::make_unique<Task>(std::move(spec), std::move(shares), observer);
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

absl::StatusOr<std::vector<std::unique_ptr<GpuTaskRunner::Share>>> GpuTaskRunner::MakeShares(
    const TaskSpec& spec) {
  ASSIGN_OR_RETURN(const auto parts, PartsByDevice(spec.part->part()));
  std::vector<std::unique_ptr<Share>> shares;
  for (const std::shared_ptr<const WorkerPart>& part : *parts) {
    // It moves nothing, so it need not even be a GPU. M2N has all devices make its calls.
    const WorkerPart::Spec& moved = part->spec();
    if (moved.relays.empty() && moved.copies.empty() && !moved.m2n) continue;
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
    task.set_part_digest(part->digest().ToString());
    task.set_checksums(spec.checksums);
    *task.mutable_communicator() = ToProto(communicator.key);
    task.mutable_devices()->Assign(communicator.devices.begin(), communicator.devices.end());
    *task.mutable_deadline() = ToProto(spec.deadline);
    *task.mutable_stall_limit() = ToProto(spec.stall_limit);
    shares.push_back(
        std::make_unique<Share>(Share{.gpu = *gpu,
                                      .part = part,
                                      .task = std::move(task),
                                      .sources = TilesOf(spec.sources, device),
                                      .destinations = TilesOf(spec.destinations, device)}));
  }
  return shares;
}

void GpuTaskRunner::Cancel(const TaskKey& key, absl::Status why) {
  if (Task* const task = Find(key)) return task->Cancel(why);
  on_host_.Cancel(key, std::move(why));
}

void GpuTaskRunner::PeerLost(const TaskKey& key, absl::string_view worker, absl::Status why) {
  if (Task* const task = Find(key)) return task->LosePeer(std::string(worker), why);
  on_host_.PeerLost(key, worker, std::move(why));
}

std::optional<int64_t> GpuTaskRunner::MovedBytes(const TaskKey& key) const {
  const Task* const task = Find(key);
  return task == nullptr ? on_host_.MovedBytes(key) : task->moved_bytes();
}

GpuTaskRunner::Task* GpuTaskRunner::Find(const TaskKey& key) const {
  const auto found = tasks_.find(key);
  return found == tasks_.end() ? nullptr : found->second.get();
}

}  // namespace crossmesh

#include "worker/gpu/tasks/device_task.h"

#include "common/base/status_macros.h"
#include "worker/executor/prepared_part.h"
#include "worker/gpu/protocol/gpu_message.h"

#include <cstddef>
#include <utility>

namespace crossmesh {

DeviceTask::DeviceTask(GpuDevice& gpu, Options options) : gpu_(gpu), options_(std::move(options)) {
  options_.task.set_part_digest(options_.part->digest().ToString());
}

void DeviceTask::Begin(Done done) {
  done_ = std::move(done);
  AwaitMemory();
}

void DeviceTask::AwaitMemory() {
  if (!cancelled_.ok()) return End(cancelled_);
  const absl::StatusOr<std::optional<Places>> sources = Locate(options_.sources);
  if (!sources.ok()) return End(sources.status());
  if (!sources->has_value()) return;
  const absl::StatusOr<std::optional<Places>> destinations = Locate(options_.destinations);
  if (!destinations.ok()) return End(destinations.status());
  if (!destinations->has_value()) return;
  *options_.task.mutable_sources() = ToProto(**sources);
  *options_.task.mutable_destinations() = ToProto(**destinations);
  Prepare();
}

absl::StatusOr<std::optional<DeviceTask::Places>> DeviceTask::Locate(const BoundTiles& tiles) {
  Places places(tiles.tensor.size());
  for (size_t tensor = 0; tensor < tiles.tensor.size(); ++tensor) {
    if (tiles.tensor[tensor] == nullptr) continue;
    ASSIGN_OR_RETURN(const StorageArenas::Found found, gpu_.arenas().Find(tiles.tensor[tensor]));
    ASSIGN_OR_RETURN(const bool is_made, found.memory->is_made());
    if (!is_made) {
      found.memory->WhenMade([this](const DeviceMemory::Made& /*made*/) { AwaitMemory(); });
      return std::nullopt;
    }
    places[tensor] = found.place;
  }
  return places;
}

void DeviceTask::Prepare() {
  state_ = State::kPreparing;
  gpu_.Prepare(*options_.part, [this](const absl::Status& prepared) {
    if (!prepared.ok()) return End(prepared);
    if (!cancelled_.ok()) return End(cancelled_);
    Run();
  });
}

void DeviceTask::Run() {
  state_ = State::kRunning;
  gpu_.Run(std::move(options_.task),
           [this](absl::StatusOr<TaskReport> report) { End(std::move(report)); });
}

void DeviceTask::Cancel(const absl::Status& why) {
  if (state_ == State::kOver || !cancelled_.ok()) return;
  cancelled_ = why;
  // Until it runs, the next step of this finds the cause; the process knows no such task yet.
  if (state_ != State::kRunning) return;
  // The task's own answer tells what became of it.
  gpu_.CancelTask(options_.key, why);
}

void DeviceTask::End(absl::StatusOr<TaskReport> report) {
  state_ = State::kOver;
  std::exchange(done_, nullptr)(std::move(report));
}

}  // namespace crossmesh

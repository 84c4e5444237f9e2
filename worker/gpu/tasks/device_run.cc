#include "worker/gpu/tasks/device_run.h"

#include "common/base/status_macros.h"
#include "worker/executor/prepared_part.h"

#include <cstddef>
#include <utility>

namespace crossmesh {

DeviceRun::DeviceRun(GpuDevice& gpu, Options options) : gpu_(gpu), options_(std::move(options)) {
  options_.task.part = options_.part->digest();
}

void DeviceRun::Begin(Done done) {
  done_ = std::move(done);
  AwaitMemory();
}

void DeviceRun::AwaitMemory() {
  if (!cancelled_.ok()) return End(cancelled_);
  absl::StatusOr<bool> is_there = Locate(options_.sources, options_.task.sources);
  if (is_there.ok() && *is_there) {
    is_there = Locate(options_.destinations, options_.task.destinations);
  }
  if (!is_there.ok()) return End(is_there.status());
  if (*is_there) Prepare();
}

absl::StatusOr<bool> DeviceRun::Locate(const BoundTiles& tiles, Places& places) {
  places.assign(tiles.tensor.size(), TilePlace());
  for (size_t tensor = 0; tensor < tiles.tensor.size(); ++tensor) {
    if (tiles.tensor[tensor] == nullptr) continue;
    ASSIGN_OR_RETURN(const StorageArenas::Found found, gpu_.arenas().Find(tiles.tensor[tensor]));
    ASSIGN_OR_RETURN(const bool is_made, found.memory->is_made());
    if (!is_made) {
      found.memory->WhenMade([this](const DeviceMemory::Made& /*made*/) { AwaitMemory(); });
      return false;
    }
    places[tensor] = found.place;
  }
  return true;
}

void DeviceRun::Prepare() {
  state_ = State::kPreparing;
  gpu_.Prepare(*options_.part, [this](const absl::Status& prepared) {
    if (!prepared.ok()) return End(prepared);
    if (!cancelled_.ok()) return End(cancelled_);
    Run();
  });
}

void DeviceRun::Run() {
  state_ = State::kRunning;
  gpu_.Run(options_.task, [this](absl::StatusOr<TaskReport> report) { End(std::move(report)); });
}

void DeviceRun::Cancel(const absl::Status& why) {
  if (state_ == State::kOver || !cancelled_.ok()) return;
  cancelled_ = why;
  if (state_ != State::kRunning) return;
  // The task's own answer tells what became of it.
  gpu_.Call(GpuRequest::CancelTask{.key = options_.task.key, .cause = why},
            [](const absl::StatusOr<GpuProcess::Reply>& /*reply*/) {});
}

void DeviceRun::End(absl::StatusOr<TaskReport> report) {
  state_ = State::kOver;
  std::exchange(done_, nullptr)(std::move(report));
}

}  // namespace crossmesh

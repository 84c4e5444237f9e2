#include "worker/courses/testing/course_mesh.h"

#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "worker/courses/course_task_runner.h"
#include "worker/executor/executor.h"
#include "worker/memory/arena.h"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <span>
#include <utility>

#include <absl/status/status.h>

namespace crossmesh {
namespace {

// What a worker has kept of an earlier task holds anything. Of a sum of floats it makes NaN.
absl::StatusOr<std::shared_ptr<Arena>> MakeArrays(ByteCount bytes) {
  ASSIGN_OR_RETURN(std::shared_ptr<Arena> arena, Arena::Create("arrays", bytes));
  std::ranges::fill(arena->bytes(), std::byte{0xFF});
  return arena;
}

}  // namespace

int64_t ArrayCount::bytes() const {
  MutexLock lock(mutex_);
  return bytes_;
}

void ArrayCount::WaitUntilGone() const {
  MutexLock lock(mutex_);
  while (left_ > 0) {
    const bool late = changed_.WaitFor(mutex_, absl::Seconds(30));
    CHECK(!late || left_ == 0) << left_ << " arrays are still there";
  }
}

absl::StatusOr<std::shared_ptr<Arena>> ArrayCount::Make(ByteCount bytes) {
  if (bytes.value() > bytes_max_) return absl::ResourceExhaustedError("no memory");
  ASSIGN_OR_RETURN(std::shared_ptr<Arena> arena, MakeArrays(bytes));
  MutexLock lock(mutex_);
  bytes_ += bytes.value();
  ++left_;
  Arena* const raw = arena.get();
  return std::shared_ptr<Arena>(raw, [this, arena = std::move(arena)](Arena*) { Release(); });
}

void ArrayCount::Release() {
  MutexLock lock(mutex_);
  --left_;
  changed_.Signal();
}

MeshRunner::Options WithCourseRunners(MeshRunner::Options options, ArrayCount* arrays) {
  options.make_runner = [arrays](EventLoop& loop, Executor& executor) {
    const auto counters = std::make_shared<CourseCounters>();
    return std::make_unique<CourseTaskRunner>(CourseTaskRunner::Ports{
        .loop = loop,
        .replays = executor.replays(),
        .others = executor,
        .counters = *counters,
        .make_memory =
            // Keeps the counters as long as the runner is there.
        [arrays, counters](const DeviceId&, ByteCount bytes) {
          return arrays == nullptr ? MakeArrays(bytes) : arrays->Make(bytes);
        },
        // Tiles of tests are no arenas. What reads them afterwards is to be seen.
        .release =
            [](std::span<std::byte> bytes) {
              std::ranges::fill(bytes, std::byte{0xDB});
              return absl::OkStatus();
            }});
  };
  return options;
}

}  // namespace crossmesh

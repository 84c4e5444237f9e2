// Sources that are released while they are consumed, in memory that is the system's to take back:
// what is resident is never more than was predicted.

#include "worker/courses/tile_release.h"

#include "common/base/check.h"
#include "common/base/mutex.h"
#include "common/plan/plan.h"
#include "common/plan/proof.h"
#include "common/plan/storage_layout.h"
#include "common/plan/testing/random_source.h"
#include "common/testing/status_matchers.h"
#include "planner/redistribute/planning/testing/course_requests.h"
#include "worker/courses/course_task_runner.h"
#include "worker/executor/executor.h"
#include "worker/executor/prepared_part.h"
#include "worker/executor/testing/mesh_runner.h"
#include "worker/executor/testing/random_case.h"
#include "worker/memory/arena.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

namespace crossmesh {
namespace {

// Arenas of all devices, and what has been resident of them. Thread-safe.
class ArenaCount {
 public:
  std::shared_ptr<Arena> Make(const DeviceId& device, int64_t bytes) {
    absl::StatusOr<std::shared_ptr<Arena>> arena = Arena::Create("tiles", ByteCount(bytes));
    CHECK_OK(arena);
    MutexLock lock(mutex_);
    arenas_[device].push_back(*arena);
    return *std::move(arena);
  }
  // Between two calls of theirs, memory of devices is only taken.
  void Count(const std::set<DeviceId>& devices) {
    MutexLock lock(mutex_);
    for (const auto& [device, arenas] : arenas_) {
      if (!devices.contains(device)) continue;
      int64_t bytes = 0;
      for (const std::shared_ptr<Arena>& arena : arenas) bytes += ResidentBytes(*arena);
      most_[device] = std::max(most_[device], bytes);
    }
  }
  std::map<DeviceId, int64_t> most() const {
    MutexLock lock(mutex_);
    return most_;
  }

 private:
  static int64_t ResidentBytes(const Arena& arena) {
    struct stat found = {};
    CHECK_EQ(fstat(arena.fd(), &found), 0);
    return found.st_blocks * 512;
  }

  mutable Mutex mutex_;
  std::map<DeviceId, std::vector<std::shared_ptr<Arena>>> arenas_ ABSL_GUARDED_BY(mutex_);
  std::map<DeviceId, int64_t> most_ ABSL_GUARDED_BY(mutex_);
};

// Has tasks run in arenas, with the tiles that they are given. Confined to the loop.
class ArenaTaskRunner final : public TaskRunner, private TaskObserver {
 public:
  ArenaTaskRunner(EventLoop& loop, Executor& executor, ArenaCount& count)
      : count_(count),
        runner_(
            {.loop = loop,
             .replays = executor.replays(),
             .others = executor,
             .counters = counters_,
             .make_memory = [this](const DeviceId& device,
                                   ByteCount bytes) { return count_.Make(device, bytes.value()); },
             .release =
                 [this](std::span<std::byte> bytes) {
                   // What destinations held before is none of the operation's.
                   if (IsInSource(bytes)) count_.Count(devices_);
                   return ReleasePages(bytes);
                 }}) {}

  absl::Status Start(TaskSpec spec, TaskObserver& observer) override {
    observer_ = &observer;
    given_ = spec;
    for (auto& [device, tiles] : spec.sources) MoveToArena(device, Side::kSource, tiles);
    for (auto& [device, tiles] : spec.destinations) MoveToArena(device, Side::kDestination, tiles);
    in_arenas_ = spec.destinations;
    return runner_.Start(std::move(spec), *this);
  }
  void Cancel(const TaskKey& key, absl::Status why) override {
    runner_.Cancel(key, std::move(why));
  }
  void Refuse(const TaskKey& key) override { runner_.Refuse(key); }
  void RaiseEpoch(uint64_t epoch) override { runner_.RaiseEpoch(epoch); }
  void PeerLost(const TaskKey& key, absl::string_view worker, absl::Status why) override {
    runner_.PeerLost(key, worker, std::move(why));
  }
  std::optional<int64_t> MovedBytes(const TaskKey& key) const override {
    return runner_.MovedBytes(key);
  }

 private:
  void MoveToArena(DeviceRank device, Side side, BoundTiles& tiles) {
    const TensorTable& tensors = given_.part->part().tensors();
    const StorageLayout layout = LayOut(tensors, side, device);
    if (layout.bytes == 0) return;
    const std::shared_ptr<Arena> arena = count_.Make(tensors.devices()[device], layout.bytes);
    devices_.insert(tensors.devices()[device]);
    if (side == Side::kSource) sources_.push_back(arena);
    if (side == Side::kDestination) arena->UseSmallPages();  // as its lease does
    for (size_t t = 0; t < tiles.tensor.size(); ++t) {
      if (tiles.tensor[t] == nullptr) continue;
      std::byte* const tile = arena->bytes().data() + layout.offset_of_tensor[t];
      // Of a destination too: what it held is to go before it is filled.
      std::memcpy(tile, tiles.tensor[t], BytesOf(side, device, t));
      tiles.tensor[t] = tile;
    }
  }
  bool IsInSource(std::span<std::byte> bytes) const {
    return std::ranges::any_of(sources_, [&](const std::shared_ptr<Arena>& arena) {
      const std::span<std::byte> all = arena->bytes();
      return bytes.data() >= all.data() && bytes.data() < all.data() + all.size();
    });
  }
  int64_t BytesOf(Side side, DeviceRank device, size_t tensor) const {
    const TensorTable& tensors = given_.part->part().tensors();
    const int32_t group = tensors.group_of_tensor()[tensor];
    return Volume(tensors.TileOf(side, group, device)) * tensors.ItemBytesOf(side, group);
  }

  void OnDeviceDone(const TaskKey& key, const DeviceReport& report) override {
    count_.Count(devices_);
    const BoundTiles& tiles = in_arenas_.at(report.device);
    for (size_t t = 0; t < tiles.tensor.size(); ++t) {
      if (tiles.tensor[t] == nullptr) continue;
      std::memcpy(given_.destinations.at(report.device).tensor[t], tiles.tensor[t],
                  BytesOf(Side::kDestination, report.device, t));
    }
    observer_->OnDeviceDone(key, report);
  }
  void OnTaskDone(const TaskReport& report) override { observer_->OnTaskDone(report); }

  ArenaCount& count_;
  CourseCounters counters_;
  CourseTaskRunner runner_;
  TaskObserver* observer_ = nullptr;
  TaskSpec given_;
  std::set<DeviceId> devices_;
  std::vector<std::shared_ptr<Arena>> sources_;
  absl::flat_hash_map<DeviceRank, BoundTiles> in_arenas_;
};

struct Change {
  const char* source;
  const char* destination;
  std::vector<std::string> partial = {};
  bool relay = true;
};

// Of matrices of a MiB, two axes of two devices.
CourseRequest RequestFor(const Change& change) {
  const std::vector<Axis> axes = {{"x", 2}, {"y", 2}};
  const RedistributionRequest request{
      .axes = axes,
      .shape = Shape::Create({{512, 512}}).value(),
      .item_bytes = 4,
      .source = EndOf(*ParseLayout(change.source), axes, change.partial).value(),
      .destination = EndOf(*ParseLayout(change.destination), axes).value()};
  CourseRequest made = RequestOf(request, {.devices_of_host = 2, .tensors = 2});
  made.request.binding = BindingMode::kInPlace;
  made.request.redistribution.release_source = true;
  made.request.redistribution.no_relays = !change.relay;
  made.sizes = {.array_bytes = 64 << 10, .released_row_elements = 2048};
  return made;
}

const Change kChanges[] = {
    {"[x*y, -]", "[-, x*y]"},
    {"[x, y]", "[y, x]"},
    {"[x, y]", "[y, x]", {}, false},
    {"[x*y, -]", "[-, -]"},
    {"[-, -]", "[x*y, -]", {"x", "y"}},
    {"[y, -]", "[-, x]", {"x"}},
    {"[x, -]", "[-, -]"},
};

TEST(TileRelease, NoMoreIsResidentThanWasPredicted) {
  for (const Change& change : kChanges) {
    SCOPED_TRACE(absl::StrCat(change.source, " to ", change.destination));
    const CourseRequest course = RequestFor(change);
    ASSERT_OK_AND_ASSIGN(const Plan plan, PlanOf(course));
    ASSERT_TRUE(plan.has_courses());
    ASSERT_OK_AND_ASSIGN(const Proof proof, Prove(plan));
    ArenaCount count;
    TileMemory memory(plan);
    {
      MeshRunner runner({.workers = 2, .make_runner = [&](EventLoop& loop, Executor& executor) {
                           return std::make_unique<ArenaTaskRunner>(loop, executor, count);
                         }});
      ASSERT_OK_AND_ASSIGN(const MeshOutcome outcome, runner.Run(plan, {0, 0, 1, 1}, memory, {}));
      for (const auto& [device, report] : outcome.devices) {
        EXPECT_OK(report.status);
        if (change.partial.empty()) EXPECT_OK(memory.CheckDestination(device));
      }
      for (const TaskReport& report : outcome.reports) {
        EXPECT_EQ(report.released_sources.size(), 2);
      }
    }
    int64_t most = 0;
    for (const auto& [device, bytes] : count.most()) most = std::max(most, bytes);
    EXPECT_LE(most, proof.peak_device_bytes);
    // And not far below: the prediction says what is needed.
    EXPECT_GE(most, proof.peak_device_bytes / 2);
    RecordProperty(absl::StrCat(change.source, change.destination),
                   absl::StrCat(most, " of ", proof.peak_device_bytes));
  }
}

}  // namespace
}  // namespace crossmesh

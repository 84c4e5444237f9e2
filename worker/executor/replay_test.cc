#include "common/testing/allocations/count_allocations.h"
#include "common/testing/status_matchers.h"
#include "worker/executor/replay_runner.h"
#include "worker/executor/testing/executor_fixture.h"
#include "worker/executor/testing/tile_memory.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <absl/status/status.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// The tensor of MakePlan.
constexpr int64_t kRows = 64, kColumns = 16384, kHalf = kColumns / 2;
constexpr int32_t kBuffers = 3;
constexpr ReplayKey kReplayKey{.operation = 9, .epoch = 1, .plan = 4};

// Memory of a buffer at all devices of the plan: one that has the whole, two that get half the
// columns each.
struct BufferMemory {
  std::vector<uint32_t> whole = std::vector<uint32_t>(kRows * kColumns);
  std::array<std::vector<uint32_t>, 2> halves = {std::vector<uint32_t>(kRows * kHalf),
                                                 std::vector<uint32_t>(kRows* kHalf)};

  void Fill(uint32_t instance) {
    for (size_t i = 0; i < whole.size(); ++i) whole[i] = instance * 2654435761U + i;
  }
  // How many elements are not those of the instance.
  int64_t Wrong(uint32_t instance) const {
    int64_t wrong = 0;
    for (int64_t row = 0; row < kRows; ++row) {
      for (int64_t column = 0; column < kColumns; ++column) {
        const uint32_t found = halves[column / kHalf][row * kHalf + column % kHalf];
        wrong += found == instance * 2654435761U + row * kColumns + column ? 0 : 1;
      }
    }
    return wrong;
  }
  void Clear() {
    for (std::vector<uint32_t>& half : halves) std::ranges::fill(half, 0xdeadU);
  }
};

class Replays final : public ReplayObserver {
 public:
  Replays() { done.reserve(4096); }
  void OnDeviceDone(const TaskKey& /*key*/, const DeviceReport& report) override {
    if (!report.status.ok()) failures.push_back(report.status);
  }
  void OnTaskDone(const TaskReport& report) override {
    done.push_back(report.key.instance);
    if (!report.lost_peers.empty()) lost = report.lost_peers;
    first_loss = report.first_loss;
    first_byte = report.seconds.first_byte;
  }
  void OnReplaysStopped(const ReplayKey& key) override { stopped = key == kReplayKey; }

  std::vector<uint32_t> done;
  std::vector<absl::Status> failures;
  std::vector<std::string> lost;
  absl::Status first_loss;
  double first_byte = 0;
  bool stopped = false;
};

class ReplayTest : public ExecutorTest {
 protected:
  // Of worker 0 on host a and worker 1 on host b.
  ReplaySpec MakeReplays(int worker, const Plan& plan, uint32_t first_instance = 0,
                         absl::Duration stall_limit = absl::Seconds(5)) {
    const TileMemory unused(plan);
    const TaskSpec task = MakeSpec(worker, plan, unused);
    ReplaySpec spec{.key = kReplayKey,
                    .token_high = task.token_high,
                    .token_low = task.token_low,
                    .part = task.part,
                    .peers = task.peers,
                    .peer_of_device = task.peer_of_device,
                    .stall_limit = stall_limit,
                    .first_instance = first_instance};
    for (BufferMemory& memory : memory_) {
      ReplaySpec::Buffer& buffer = spec.buffers.emplace_back();
      for (const auto& [device, tiles] : task.sources) {
        buffer.sources[device] = Bound(plan, Side::kSource, device, memory);
        buffer.destinations[device] = Bound(plan, Side::kDestination, device, memory);
      }
    }
    return spec;
  }

  static BoundTiles Bound(const Plan& plan, Side side, DeviceRank device, BufferMemory& memory) {
    const Placement& placement = side == Side::kSource ? plan.tensors().spec().sources[0]
                                                       : plan.tensors().spec().destinations[0];
    const std::vector<DeviceId>& devices = placement.mesh.devices();
    const auto found = std::ranges::find(devices, plan.tensors().devices()[device]);
    if (found == devices.end()) return {.tensor = {nullptr}};
    uint32_t* const tile =
        side == Side::kSource ? memory.whole.data() : memory.halves[found - devices.begin()].data();
    return {.tensor = {reinterpret_cast<std::byte*>(tile)}};
  }

  ReplayRunner& Runner(int worker) { return workers_[worker].executor->replays(); }

  void StartBoth(const Plan& plan, uint32_t first_instance = 0,
                 absl::Duration stall_limit = absl::Seconds(5)) {
    for (int i = 0; i < 2; ++i) {
      ASSERT_OK(
          Runner(i).StartReplays(MakeReplays(i, plan, first_instance, stall_limit), replays_[i]));
    }
  }

  // Begins an instance at worker 0, whose source is filled, or at worker 1, in the buffer that is
  // its by number.
  void Send(uint32_t instance) {
    Runner(0).Replay(kReplayKey, static_cast<int32_t>(instance % kBuffers), instance);
    Runner(0).ReplaySourceHere(kReplayKey, instance);
  }
  void Receive(uint32_t instance) {
    Runner(1).Replay(kReplayKey, static_cast<int32_t>(instance % kBuffers), instance);
  }

  // Both workers begin what the buffers allow, up to `count` instances in all; a buffer's contents
  // are looked at when both have ended with it.
  void Advance(uint32_t count) {
    while (sent_ < count && sent_ < looked_at_ + kBuffers) {
      memory_[sent_ % kBuffers].Fill(sent_);
      Send(sent_++);
    }
    while (received_ < count && received_ < looked_at_ + kBuffers) {
      memory_[received_ % kBuffers].Clear();
      Receive(received_++);
    }
    while (looked_at_ < count && IsDone(0, looked_at_) && IsDone(1, looked_at_)) {
      EXPECT_EQ(memory_[looked_at_ % kBuffers].Wrong(looked_at_), 0) << "instance " << looked_at_;
      ++looked_at_;
    }
  }
  bool IsDone(int worker, uint32_t instance) const {
    return std::ranges::find(replays_[worker].done, instance) != replays_[worker].done.end();
  }
  void RunAll(uint32_t count) {
    RunUntil("the last instance", [&] {
      Advance(count);
      return looked_at_ == count;
    });
  }

  void StopBoth(uint32_t next_instance) {
    for (int i = 0; i < 2; ++i) {
      Runner(i).StopReplays(kReplayKey, absl::CancelledError("enough"), next_instance);
    }
    RunUntil("both workers to stop", [&] { return replays_[0].stopped && replays_[1].stopped; });
  }

  // Passes when so long has gone by on the loop.
  void RunFor(absl::Duration time) {
    bool over = false;
    loop_->RunAfter(time, [&over] { over = true; });
    RunUntil("time to go by", [&over] { return over; });
  }

  std::array<BufferMemory, kBuffers> memory_;
  Replays replays_[2];
  uint32_t sent_ = 0;
  uint32_t received_ = 0;
  uint32_t looked_at_ = 0;
};

TEST_F(ReplayTest, EveryInstanceArrivesWithItsOwnContents) {
  StartBoth(MakePlan("a.0", "b.0-1"));
  RunAll(40);
  EXPECT_THAT(replays_[1].failures, IsEmpty());
  EXPECT_GT(replays_[0].first_byte, 0);
  EXPECT_EQ(workers_[1].executor->counters().relays_succeeded, 2 * 40);
  EXPECT_EQ(workers_[1].executor->counters().checksum_failures, 0);
  StopBoth(40);
}

TEST_F(ReplayTest, SoDoThoseInsideAWorker) {
  const Plan plan = MakePlan("a.0", "a.1-2");
  ASSERT_OK(Runner(0).StartReplays(MakeReplays(0, plan), replays_[0]));
  for (uint32_t instance = 0; instance < 20; ++instance) {
    BufferMemory& memory = memory_[instance % kBuffers];
    memory.Clear();
    memory.Fill(instance);
    Send(instance);
    RunUntil("the instance to end", [&] { return IsDone(0, instance); });
    EXPECT_EQ(memory.Wrong(instance), 0) << "instance " << instance;
  }
}

TEST_F(ReplayTest, InstancesInsideAWorkerAllocateNothing) {
  const Plan plan = MakePlan("a.0", "a.1-2");
  ASSERT_OK(Runner(0).StartReplays(MakeReplays(0, plan), replays_[0]));
  const auto replay = [&](uint32_t instance) {
    Send(instance);
    RunUntil("the instance to end", [&] { return replays_[0].done.size() == instance + 1; });
  };
  for (uint32_t instance = 0; instance < 2 * kBuffers; ++instance) replay(instance);
  EXPECT_EQ(CountAllocations([&] {
              for (uint32_t instance = 2 * kBuffers; instance < 12 * kBuffers; ++instance) {
                replay(instance);
              }
            }),
            0);
}

TEST_F(ReplayTest, NothingIsSentBeforeTheReceiverIsReady) {
  constexpr absl::Duration kStall = absl::Milliseconds(40);
  StartBoth(MakePlan("a.0", "b.0-1"), 0, kStall);
  memory_[0].Fill(0);
  Send(0);
  // The receiver takes its time, and answers when it is asked: no worker is blamed.
  RunFor(10 * kStall);
  EXPECT_THAT(workers_[0].executor->counters().links, IsEmpty());
  EXPECT_THAT(replays_[0].done, IsEmpty());
  EXPECT_EQ(workers_[0].executor->counters().stalls, 0);
  Receive(0);
  RunUntil("the instance to end at both workers", [&] { return IsDone(0, 0) && IsDone(1, 0); });
  EXPECT_EQ(memory_[0].Wrong(0), 0);
  EXPECT_THAT(replays_[1].failures, IsEmpty());
}

TEST_F(ReplayTest, AReceiverMayBeReadyBeforeTheSenderBegins) {
  constexpr absl::Duration kStall = absl::Milliseconds(40);
  StartBoth(MakePlan("a.0", "b.0-1"), 0, kStall);
  for (uint32_t instance = 0; instance < kBuffers; ++instance) {
    Receive(instance);
  }
  RunFor(10 * kStall);
  EXPECT_EQ(workers_[1].executor->counters().stalls, 0);
  for (uint32_t instance = 0; instance < kBuffers; ++instance) {
    memory_[instance].Fill(instance);
    Send(instance);
  }
  RunUntil("all instances to end at the receiver",
           [&] { return replays_[1].done.size() == kBuffers; });
  for (uint32_t instance = 0; instance < kBuffers; ++instance) {
    EXPECT_EQ(memory_[instance].Wrong(instance), 0);
  }
}

TEST_F(ReplayTest, TheFirstChunkIsOnItsWayBeforeTheOthersAreHashed) {
  StartBoth(MakePlan("a.0", "b.0-1"));
  memory_[0].Fill(0);
  for (int i = 0; i < 2; ++i) Runner(i).Replay(kReplayKey, 0, 0);
  RunFor(absl::Milliseconds(10));
  loop_->Post([this] { Runner(0).ReplaySourceHere(kReplayKey, 0); });
  const auto& links = workers_[1].executor->counters().links;
  RunUntil("the first chunk", [&] { return !links.empty(); });
  EXPECT_EQ(links[0].received, Plan::kLeafBytes);
  RunUntil("the instance to end at both workers", [&] { return IsDone(0, 0) && IsDone(1, 0); });
  EXPECT_EQ(memory_[0].Wrong(0), 0);
}

// Its messages are kept and none is answered, as if the worker had stopped.
TEST_F(ReplayTest, AReceiverThatAnswersNothingIsLost) {
  const Plan plan = MakePlan("a.0", "b.0-1");
  ASSERT_OK(Runner(0).StartReplays(MakeReplays(0, plan, 0, absl::Milliseconds(40)), replays_[0]));
  Send(0);
  RunUntil("the instance to fail", [&] { return IsDone(0, 0); });
  EXPECT_THAT(replays_[0].lost, ElementsAre("w1"));
  EXPECT_THAT(replays_[0].first_loss,
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("worker w1 is lost: stalled")));
  // What comes after it fails at once.
  Runner(0).Replay(kReplayKey, 1, 1);
  RunUntil("the next instance to fail", [&] { return IsDone(0, 1); });
}

TEST_F(ReplayTest, ASenderThatAnswersNothingFailsTheDevices) {
  const Plan plan = MakePlan("a.0", "b.0-1");
  ASSERT_OK(Runner(1).StartReplays(MakeReplays(1, plan, 0, absl::Milliseconds(40)), replays_[1]));
  for (uint32_t instance = 0; instance < 2; ++instance) {
    Runner(1).Replay(kReplayKey, 0, instance);
    RunUntil("the instance to fail", [&] { return IsDone(1, instance); });
  }
  ASSERT_EQ(replays_[1].failures.size(), 4U);
  for (const absl::Status& failure : replays_[1].failures) {
    EXPECT_THAT(failure, StatusIs(absl::StatusCode::kUnavailable, HasSubstr("worker w0 is lost")));
  }
}

TEST_F(ReplayTest, StoppedInTheMiddleTheyCanBeStartedAgain) {
  const Plan plan = MakePlan("a.0", "b.0-1");
  StartBoth(plan);
  RunAll(5);
  // Some are under way, one of them without its source, and one that the receiver has not begun.
  Send(5);
  Runner(0).Replay(kReplayKey, 0, 6);
  Send(7);
  Receive(5);
  Receive(6);
  RunUntilIdle();
  StopBoth(100);
  EXPECT_FALSE(replays_[1].failures.empty());
  for (const absl::Status& failure : replays_[1].failures) {
    EXPECT_THAT(failure, StatusIs(absl::StatusCode::kCancelled, HasSubstr("enough")));
  }
  for (Replays& replays : replays_) {
    replays.failures.clear();
    replays.stopped = false;
  }
  sent_ = received_ = looked_at_ = 100;
  StartBoth(plan, 100);
  RunAll(110);
  EXPECT_THAT(replays_[1].failures, IsEmpty());
}

TEST_F(ReplayTest, APlanThatTakesItsTimeTakesItEveryTime) {
  StartBoth(MakeSlowPlan(0.01));
  RunAll(12);
  EXPECT_THAT(replays_[1].failures, IsEmpty());
}

TEST_F(ReplayTest, NoInstanceIsFasterThanItsPlan) {
  constexpr double kLeastSeconds = 0.1;
  StartBoth(MakeSlowPlan(kLeastSeconds));
  // In the same buffer.
  for (const uint32_t instance : {0U, uint32_t{kBuffers}}) {
    const absl::Duration begin = clock_.Monotonic();
    Receive(instance);
    Send(instance);
    RunUntil("the instance to end at both workers",
             [&] { return IsDone(0, instance) && IsDone(1, instance); });
    // 64 chunks: the last one may go when all others have had their time.
    EXPECT_GE(absl::ToDoubleSeconds(clock_.Monotonic() - begin), kLeastSeconds * 62 / 64)
        << "instance " << instance;
  }
}

TEST_F(ReplayTest, AnObserverMayStartReplays) {
  class Starter final : public ReplayObserver {
   public:
    explicit Starter(std::function<void()> start) : start_(std::move(start)) {}
    void OnDeviceDone(const TaskKey& /*key*/, const DeviceReport& /*report*/) override {}
    void OnTaskDone(const TaskReport& /*report*/) override { start_(); }
    void OnReplaysStopped(const ReplayKey& /*key*/) override {}

   private:
    const std::function<void()> start_;
  };
  const Plan plan = MakePlan("a.0", "a.1-2");
  bool started = false;
  Starter starter([&] {
    for (uint32_t number = 100; number < 120; ++number) {
      ReplaySpec spec = MakeReplays(0, plan);
      spec.key.plan = number;
      ASSERT_OK(Runner(0).StartReplays(std::move(spec), replays_[1]));
    }
    started = true;
  });
  ASSERT_OK(Runner(0).StartReplays(MakeReplays(0, plan), starter));
  Send(0);
  RunUntil("the observer to start replays", [&] { return started; });
}

TEST_F(ReplayTest, WhatCannotBeReplayedIsRefused) {
  const Plan plan = MakePlan("a.0", "b.0-1");
  ReplaySpec spec = MakeReplays(0, plan);
  spec.buffers.clear();
  EXPECT_THAT(Runner(0).StartReplays(spec, replays_[0]),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("expected buffers")));
  spec = MakeReplays(0, plan);
  spec.buffers[1].sources.clear();
  EXPECT_THAT(Runner(0).StartReplays(spec, replays_[0]),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("found none")));
  ASSERT_OK(Runner(0).StartReplays(MakeReplays(0, plan), replays_[0]));
  EXPECT_THAT(Runner(0).StartReplays(MakeReplays(0, plan), replays_[0]),
              StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr("plan 4")));
}

}  // namespace
}  // namespace crossmesh

#pragma once

#include "common/plan/plan.h"
#include "worker/executor/replay_runner.h"
#include "worker/executor/testing/executor_fixture.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/time/time.h>

namespace crossmesh {

inline constexpr ReplayKey kReplayKey{.operation = 9, .epoch = 1, .plan = 4};

// Memory of a buffer at all devices of MakePlan: one that has the whole, two that get half the
// columns each.
struct ReplayedTensor {
  static constexpr int64_t kRows = 64, kColumns = 16384, kHalf = kColumns / 2;

  std::vector<uint32_t> whole = std::vector<uint32_t>(kRows * kColumns);
  std::array<std::vector<uint32_t>, 2> halves = {std::vector<uint32_t>(kRows * kHalf),
                                                 std::vector<uint32_t>(kRows* kHalf)};

  void Fill(uint32_t instance);
  // How many elements are not those of the instance.
  int64_t Wrong(uint32_t instance) const;
  void Clear();
};

class Replays final : public ReplayObserver {
 public:
  Replays() { done.reserve(4096); }
  void OnDeviceDone(const TaskKey& key, const DeviceReport& report) override;
  void OnTaskDone(const TaskReport& report) override;
  void OnReplaysStopped(const ReplayKey& key) override { stopped = key == kReplayKey; }

  std::vector<uint32_t> done;
  std::vector<absl::Status> failures;
  std::vector<std::string> lost;
  absl::Status first_loss;
  double first_byte = 0;
  bool stopped = false;
};

// Replays of a plan of MakePlan or MakeSlowPlan between the workers of ExecutorTest.
class ReplayTest : public ExecutorTest {
 protected:
  static constexpr int32_t kBuffers = 3;

  // Of worker 0 on host a and worker 1 on host b.
  ReplaySpec MakeReplays(int worker, const Plan& plan, uint32_t first_instance = 0,
                         absl::Duration stall_limit = absl::Seconds(5));
  void StartBoth(const Plan& plan, uint32_t first_instance = 0,
                 absl::Duration stall_limit = absl::Seconds(5));
  ReplayRunner& Runner(int worker) { return workers_[worker].executor->replays(); }

  // Begins an instance at worker 0, whose source is filled, or at worker 1, in the buffer that is
  // its by number.
  void Send(uint32_t instance) {
    Runner(0).Replay(kReplayKey, static_cast<int32_t>(instance % kBuffers), instance);
    Runner(0).ReplaySourceHere(kReplayKey, instance);
  }
  void Receive(uint32_t instance) {
    Runner(1).Replay(kReplayKey, static_cast<int32_t>(instance % kBuffers), instance);
  }
  bool IsDone(int worker, uint32_t instance) const {
    return std::ranges::find(replays_[worker].done, instance) != replays_[worker].done.end();
  }

  // Both workers begin what the buffers allow, up to `count` instances in all; a buffer's contents
  // are looked at when both have ended with it.
  void Advance(uint32_t count);
  void RunAll(uint32_t count);
  void StopBoth(uint32_t next_instance);
  // Passes when so long has gone by on the loop.
  void RunFor(absl::Duration time);

  std::array<ReplayedTensor, kBuffers> memory_;
  Replays replays_[2];
  uint32_t sent_ = 0;
  uint32_t received_ = 0;
  uint32_t looked_at_ = 0;

 private:
  static BoundTiles Bound(const Plan& plan, Side side, DeviceRank device, ReplayedTensor& memory);
};

}  // namespace crossmesh

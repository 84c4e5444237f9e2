// Random plans over a faulty network: every task ends, a device that is reported
// complete has the right bytes, and nothing outside of tiles is written.

#include "common/plan/testing/random_source.h"
#include "common/testing/status_matchers.h"
#include "worker/executor/testing/mesh_runner.h"
#include "worker/executor/testing/random_case.h"
#include "worker/executor/testing/tile_memory.h"

#include <cstdint>
#include <utility>
#include <vector>

#include <absl/container/flat_hash_set.h>
#include <absl/status/status.h>
#include <absl/strings/str_cat.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::HasSubstr;

// For tests that check which worker is blamed: so long that no thread of this process is that late.
constexpr absl::Duration kStallLimit = absl::Seconds(1);

struct Case {
  explicit Case(uint64_t seed) : random(seed), plan(RandomCase(random)), memory(plan) {}

  RandomSource random;
  Plan plan;
  TileMemory memory;
};

// Devices that get some byte over a connection from or to `worker`, or from such a device.
absl::flat_hash_set<DeviceRank> Downstream(int32_t worker, const Plan& plan,
                                           const std::vector<int32_t>& worker_of_device) {
  absl::flat_hash_set<DeviceRank> downstream;
  for (const Relay& relay : plan.relays()) {
    absl::flat_hash_set<DeviceRank> cut_off;
    for (const Hop& hop : plan.hops(relay)) {
      const int32_t from = worker_of_device[hop.from];
      const int32_t to = worker_of_device[hop.to];
      if (cut_off.contains(hop.from) || (from != to && (from == worker || to == worker))) {
        cut_off.insert(hop.to);
        downstream.insert(hop.to);
      }
    }
  }
  return downstream;
}

void CheckSound(const Case& one, const MeshOutcome& outcome) {
  for (const auto& [device, report] : outcome.devices) {
    if (!report.status.ok()) continue;
    EXPECT_OK(one.memory.CheckDestination(device));
  }
  EXPECT_OK(one.memory.CheckUntouched());
}

template <typename Body>
void ForCases(uint64_t seed, int64_t cases, Body body) {
  seed = FromEnvironment("CROSSMESH_SEED", seed);
  cases = static_cast<int64_t>(FromEnvironment("CROSSMESH_CASES", cases));
  for (int64_t i = 0; i < cases && !testing::Test::HasFailure(); ++i) {
    SCOPED_TRACE(absl::StrCat("CROSSMESH_SEED=", seed + i, " CROSSMESH_CASES=1"));
    body(seed + i);
  }
}

TEST(ExecutorFaults, CorruptionIsFoundByChecksum) {
  int64_t found = 0;
  ForCases(300'000, 150, [&](uint64_t seed) {
    Case one(seed);
    MeshRunner runner({.workers = 3, .faults = {.seed = seed, .corrupt_probability = 0.05}});
    const auto workers = DealDevices(one.random, one.plan, 3);
    ASSERT_OK_AND_ASSIGN(const MeshOutcome outcome, runner.Run(one.plan, workers, one.memory, {}));
    CheckSound(one, outcome);
    for (const auto& [device, report] : outcome.devices) {
      if (report.status.ok()) continue;
      // Internal: it was an opening that was hit; any code: the text of a failure.
      if (report.status.code() != absl::StatusCode::kDataLoss) continue;
      EXPECT_THAT(report.status, StatusIs(absl::StatusCode::kDataLoss, HasSubstr("relay ")));
      ++found;
    }
  });
  if (FromEnvironment("CROSSMESH_SEED", 0) == 0) {
    EXPECT_GT(found, 50);
  }
}

TEST(ExecutorFaults, ADroppedMessageEndsInAStallThatBlamesAPeer) {
  int64_t stalled = 0;
  ForCases(400'000, 12, [&](uint64_t seed) {
    Case one(seed);
    MeshRunner runner({.workers = 3, .faults = {.seed = seed, .drop_probability = 0.05}});
    const auto workers = DealDevices(one.random, one.plan, 3);
    ASSERT_OK_AND_ASSIGN(
        const MeshOutcome outcome,
        runner.Run(one.plan, workers, one.memory, {.stall_limit = absl::Milliseconds(200)}));
    CheckSound(one, outcome);
    bool blamed = false;
    for (const TaskReport& report : outcome.reports) blamed |= !report.lost_peers.empty();
    for (const auto& [device, report] : outcome.devices) {
      if (report.status.ok()) continue;
      EXPECT_TRUE(blamed);
      EXPECT_THAT(report.status, StatusIs(absl::StatusCode::kUnavailable, HasSubstr("worker w")));
    }
    stalled += runner.Counters().stalls;
  });
  if (FromEnvironment("CROSSMESH_SEED", 0) == 0) {
    EXPECT_GT(stalled, 5);
  }
}

TEST(ExecutorFaults, ALostWorkerFailsExactlyTheDevicesBehindIt) {
  ForCases(500'000, 200, [](uint64_t seed) {
    Case one(seed);
    MeshRunner runner({.workers = 4});
    const auto workers = DealDevices(one.random, one.plan, 4);
    const auto lost = static_cast<int32_t>(one.random.Below(4));
    runner.fabric().Kill(runner.address(lost));
    ASSERT_OK_AND_ASSIGN(const MeshOutcome outcome, runner.Run(one.plan, workers, one.memory, {}));
    CheckSound(one, outcome);
    const auto downstream = Downstream(lost, one.plan, workers);
    for (const auto& [device, report] : outcome.devices) {
      EXPECT_EQ(report.status.ok(), !downstream.contains(device)) << report.status;
      if (!report.status.ok() && workers[device] != lost) {
        EXPECT_THAT(report.status,
                    StatusIs(absl::StatusCode::kUnavailable, HasSubstr(absl::StrCat("w", lost))));
      }
    }
  });
}

TEST(ExecutorFaults, ACutInTheMiddleFailsNoDeviceThatIsNotBehindIt) {
  int64_t failed = 0;
  ForCases(600'000, 20, [&](uint64_t seed) {
    Case one(seed);
    MeshRunner runner({.workers = 3});
    const auto workers = DealDevices(one.random, one.plan, 3);
    const FaultPlan cut{.cut_after_messages = one.random.Below(8)};
    for (const int32_t other : {1, 2}) {
      runner.fabric().SetFaults(runner.address(0), runner.address(other), cut);
      runner.fabric().SetFaults(runner.address(other), runner.address(0), cut);
    }
    // A worker that connects after the cut finds a peer that has given up: it answers no more.
    ASSERT_OK_AND_ASSIGN(const MeshOutcome outcome,
                         runner.Run(one.plan, workers, one.memory, {.stall_limit = kStallLimit}));
    CheckSound(one, outcome);
    const auto downstream = Downstream(0, one.plan, workers);
    for (const auto& [device, report] : outcome.devices) {
      if (report.status.ok()) continue;
      EXPECT_TRUE(downstream.contains(device)) << report.status;
      ++failed;
    }
  });
  if (FromEnvironment("CROSSMESH_SEED", 0) == 0) {
    EXPECT_GT(failed, 5);
  }
}

TEST(ExecutorFaults, AWorkerThatHangsIsBlamedByName) {
  ForCases(700'000, 4, [](uint64_t seed) {
    Case one(seed);
    MeshRunner runner({.workers = 3});
    const auto workers = DealDevices(one.random, one.plan, 3);
    ASSERT_OK_AND_ASSIGN(const MeshOutcome outcome,
                         runner.Run(one.plan, workers, one.memory,
                                    {.stall_limit = kStallLimit, .absent_worker = 1}));
    CheckSound(one, outcome);
    const auto downstream = Downstream(1, one.plan, workers);
    for (const auto& [device, report] : outcome.devices) {
      EXPECT_EQ(report.status.ok(), !downstream.contains(device)) << report.status;
      if (report.status.ok()) continue;
      EXPECT_THAT(report.status, StatusIs(absl::StatusCode::kUnavailable, HasSubstr("w1")));
    }
    for (const TaskReport& report : outcome.reports) {
      for (const std::string& lost : report.lost_peers) EXPECT_EQ(lost, "w1");
    }
  });
}

TEST(ExecutorFaults, CancelEndsEveryTask) {
  ForCases(800'000, 200, [](uint64_t seed) {
    Case one(seed);
    MeshRunner runner({.workers = 3});
    const auto workers = DealDevices(one.random, one.plan, 3);
    MeshRunner::RunOptions options;
    options.disturb = [](Executor& executor, const TaskKey& key) {
      executor.Cancel(key, absl::CancelledError("the user has had enough"));
      executor.Cancel(key, absl::CancelledError("again"));
    };
    ASSERT_OK_AND_ASSIGN(const MeshOutcome outcome,
                         runner.Run(one.plan, workers, one.memory, std::move(options)));
    CheckSound(one, outcome);
    for (const auto& [device, report] : outcome.devices) {
      if (report.status.ok()) continue;
      EXPECT_THAT(report.status, StatusIs(absl::StatusCode::kCancelled, HasSubstr("had enough")));
    }
    EXPECT_EQ(runner.Counters().staging_bytes_used, 0);
  });
}

TEST(ExecutorFaults, AWorkerThatOthersFoundGoneIsLostOnlyUntilTheNextTask) {
  ForCases(900'000, 10, [](uint64_t seed) {
    Case one(seed);
    MeshRunner runner({.workers = 3});
    const auto workers = DealDevices(one.random, one.plan, 3);
    MeshRunner::RunOptions options{.stall_limit = kStallLimit};
    options.disturb = [](Executor& executor, const TaskKey& key) {
      executor.PeerLost(key, "w1", absl::UnavailableError("its session ended"));
    };
    ASSERT_OK_AND_ASSIGN(const MeshOutcome outcome,
                         runner.Run(one.plan, workers, one.memory, std::move(options)));
    CheckSound(one, outcome);
    const auto downstream_0 = Downstream(0, one.plan, workers);
    const auto downstream_1 = Downstream(1, one.plan, workers);
    for (const auto& [device, report] : outcome.devices) {
      if (report.status.ok()) continue;
      EXPECT_TRUE(downstream_0.contains(device) && downstream_1.contains(device)) << report.status;
    }
    TileMemory again(one.plan);
    ASSERT_OK_AND_ASSIGN(const MeshOutcome next, runner.Run(one.plan, workers, again, {}));
    for (const auto& [device, report] : next.devices) EXPECT_OK(report.status);
  });
}

TEST(ExecutorFaults, TheDeadlineNamesWhatIsMissing) {
  for (uint64_t seed = 1'000'000;; ++seed) {
    Case one(seed);
    const std::vector<int32_t> workers = DealDevices(one.random, one.plan, 2);
    const auto downstream = Downstream(1, one.plan, workers);
    if (downstream.empty()) continue;
    MeshRunner runner({.workers = 2});
    ASSERT_OK_AND_ASSIGN(const MeshOutcome outcome,
                         runner.Run(one.plan, workers, one.memory,
                                    {.deadline = absl::Milliseconds(50),
                                     .stall_limit = absl::Milliseconds(400),
                                     .absent_worker = 1}));
    CheckSound(one, outcome);
    for (const auto& [device, report] : outcome.devices) {
      if (!downstream.contains(device)) continue;
      EXPECT_THAT(report.status,
                  StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("from worker w1")));
    }
    return;
  }
}

}  // namespace
}  // namespace crossmesh

// Random plans over a faulty network: every task ends, a device that is reported
// complete has the right bytes, and nothing outside of tiles is written.

#include "common/base/check.h"
#include "common/plan/testing/random_source.h"
#include "common/testing/random_cases.h"
#include "common/testing/status_matchers.h"
#include "worker/executor/testing/mesh_runner.h"
#include "worker/executor/testing/random_case.h"
#include "worker/executor/testing/tile_memory.h"

#include <cstdint>
#include <utility>
#include <vector>

#include <absl/container/flat_hash_set.h>
#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/str_cat.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::HasSubstr;

// For tests that check which worker is blamed: so long that no thread of this process is that late.
constexpr absl::Duration kShortStallLimit = absl::Seconds(1);

// A random plan, and workers to which its devices were dealt.
struct Case {
  Case(uint64_t seed, const MeshRunner::Options& options)
      : random(seed),
        plan(RandomCase(random)),
        memory(plan),
        runner(options),
        workers(DealDevices(random, plan, options.workers)) {}

  // Devices that are reported complete have the right bytes, and no others are written.
  MeshOutcome Run(MeshRunner::RunOptions options = {}) {
    absl::StatusOr<MeshOutcome> outcome = runner.Run(plan, workers, memory, std::move(options));
    CHECK_OK(outcome);
    for (const auto& [device, report] : outcome->devices) {
      if (!report.status.ok()) continue;
      EXPECT_OK(memory.CheckDestination(device));
    }
    EXPECT_OK(memory.CheckUntouched());
    return *std::move(outcome);
  }

  // Devices that get some byte over a connection from or to `worker`, or from such a device.
  absl::flat_hash_set<DeviceRank> Downstream(int32_t worker) const;

  RandomSource random;
  Plan plan;
  TileMemory memory;
  MeshRunner runner;
  const std::vector<int32_t> workers;
};

absl::flat_hash_set<DeviceRank> Case::Downstream(int32_t worker) const {
  absl::flat_hash_set<DeviceRank> downstream;
  for (const Relay& relay : plan.relays()) {
    absl::flat_hash_set<DeviceRank> cut_off;
    for (const Hop& hop : plan.hops(relay)) {
      const int32_t from = workers[hop.from];
      const int32_t to = workers[hop.to];
      if (cut_off.contains(hop.from) || (from != to && (from == worker || to == worker))) {
        cut_off.insert(hop.to);
        downstream.insert(hop.to);
      }
    }
  }
  return downstream;
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
    Case one(seed, {.workers = 3, .faults = {.seed = seed, .corrupt_probability = 0.05}});
    const MeshOutcome outcome = one.Run();
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
    Case one(seed, {.workers = 3, .faults = {.seed = seed, .drop_probability = 0.05}});
    const MeshOutcome outcome = one.Run({.stall_limit = absl::Milliseconds(200)});
    bool blamed = false;
    for (const TaskReport& report : outcome.reports) blamed |= !report.lost_peers.empty();
    for (const auto& [device, report] : outcome.devices) {
      if (report.status.ok()) continue;
      EXPECT_TRUE(blamed);
      EXPECT_THAT(report.status, StatusIs(absl::StatusCode::kUnavailable, HasSubstr("worker w")));
    }
    stalled += one.runner.Counters().stalls;
  });
  if (FromEnvironment("CROSSMESH_SEED", 0) == 0) {
    EXPECT_GT(stalled, 5);
  }
}

TEST(ExecutorFaults, ALostWorkerFailsExactlyTheDevicesDownstream) {
  ForCases(500'000, 200, [](uint64_t seed) {
    Case one(seed, {.workers = 4});
    const auto lost = static_cast<int32_t>(one.random.Below(4));
    one.runner.fabric().Kill(one.runner.address(lost));
    const MeshOutcome outcome = one.Run();
    const auto downstream = one.Downstream(lost);
    for (const auto& [device, report] : outcome.devices) {
      EXPECT_EQ(report.status.ok(), !downstream.contains(device)) << report.status;
      if (!report.status.ok() && one.workers[device] != lost) {
        EXPECT_THAT(report.status,
                    StatusIs(absl::StatusCode::kUnavailable, HasSubstr(absl::StrCat("w", lost))));
      }
    }
  });
}

TEST(ExecutorFaults, ACutInTheMiddleFailsNoDeviceThatIsNotDownstream) {
  int64_t failed = 0;
  ForCases(600'000, 20, [&](uint64_t seed) {
    Case one(seed, {.workers = 3});
    const FaultPlan cut{.cut_after_messages = one.random.Below(8)};
    for (const int32_t other : {1, 2}) {
      one.runner.fabric().SetFaults(one.runner.address(0), one.runner.address(other), cut);
      one.runner.fabric().SetFaults(one.runner.address(other), one.runner.address(0), cut);
    }
    // A worker that connects after the cut finds a peer that has given up: it answers no more.
    const MeshOutcome outcome = one.Run({.stall_limit = kShortStallLimit});
    const auto downstream = one.Downstream(0);
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
    Case one(seed, {.workers = 3});
    const MeshOutcome outcome = one.Run({.stall_limit = kShortStallLimit, .absent_worker = 1});
    const auto downstream = one.Downstream(1);
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
    Case one(seed, {.workers = 3});
    MeshRunner::RunOptions options;
    options.disturb = [](TaskRunner& runner, const TaskKey& key) {
      runner.Cancel(key, absl::CancelledError("the user has had enough"));
      runner.Cancel(key, absl::CancelledError("again"));
    };
    const MeshOutcome outcome = one.Run(std::move(options));
    for (const auto& [device, report] : outcome.devices) {
      if (report.status.ok()) continue;
      EXPECT_THAT(report.status, StatusIs(absl::StatusCode::kCancelled, HasSubstr("had enough")));
    }
    EXPECT_EQ(one.runner.Counters().staging_bytes_used, 0);
  });
}

TEST(ExecutorFaults, AWorkerThatOthersFoundGoneIsLostOnlyUntilTheNextTask) {
  ForCases(900'000, 10, [](uint64_t seed) {
    Case one(seed, {.workers = 3});
    MeshRunner::RunOptions options{.stall_limit = kShortStallLimit};
    options.disturb = [](TaskRunner& runner, const TaskKey& key) {
      runner.PeerLost(key, "w1", absl::UnavailableError("its session ended"));
    };
    const MeshOutcome outcome = one.Run(std::move(options));
    const auto downstream_0 = one.Downstream(0);
    const auto downstream_1 = one.Downstream(1);
    for (const auto& [device, report] : outcome.devices) {
      if (report.status.ok()) continue;
      EXPECT_TRUE(downstream_0.contains(device) && downstream_1.contains(device)) << report.status;
    }
    TileMemory again(one.plan);
    ASSERT_OK_AND_ASSIGN(const MeshOutcome next, one.runner.Run(one.plan, one.workers, again, {}));
    for (const auto& [device, report] : next.devices) EXPECT_OK(report.status);
  });
}

TEST(ExecutorFaults, TheDeadlineNamesWhatIsMissing) {
  for (uint64_t seed = 1'000'000;; ++seed) {
    Case one(seed, {.workers = 2});
    const auto downstream = one.Downstream(1);
    if (downstream.empty()) continue;
    const MeshOutcome outcome = one.Run({.deadline = absl::Milliseconds(50),
                                         .stall_limit = absl::Milliseconds(400),
                                         .absent_worker = 1});
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

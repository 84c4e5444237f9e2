// A cluster at half load for some time, operations that are cancelled among others: what its
// daemons hold stays as it was.

#include "client/pause.h"
#include "common/base/clock.h"
#include "common/base/thread.h"
#include "common/testing/random_cases.h"
#include "common/testing/sanitizers.h"
#include "common/testing/status_matchers.h"
#include "common/testing/temporary_folder.h"
#include "tests/live/live_cluster.h"
#include "tests/reliability/cancel_load.h"
#include "tests/reliability/held_resources.h"
#include "tests/reliability/line.h"
#include "tests/reliability/load_cases.h"
#include "tests/reliability/load_client.h"
#include "tests/reliability/pipeline_load.h"
#include "tests/reliability/reshard_load.h"
#include "tests/reliability/timed_calls.h"

#include <algorithm>
#include <atomic>
#include <iostream>
#include <map>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

// Of these the first third warms up.
constexpr int kRounds = 12;
constexpr int kWarm = kRounds / 3;
// Until daemons have all that they keep up to a bound, they grow. Request ids are kept for a time,
// plans up to a size; of commits, ended operations and lines of a log it is the last thousand.
constexpr absl::Duration kRequestIdsFor = absl::Minutes(1);
constexpr int64_t kPlanBytesMax = 1 << 20;
constexpr int kOperationsMin = 3000;
// What is allocated may grow so fast then.
constexpr double kMbAnHourMax = 1;
// So many threads may a pool get in a run that is too short for that. Of one that each operation of
// a load leaves, there is one more in every round at least.
constexpr int64_t kPoolThreads = (kRounds - kWarm) / 2 - 1;
// What an allocator keeps of peaks; of a sanitizer's there is no bound.
constexpr double kMemoryNoiseMb = 32;

// When clients and daemons had nothing to do.
struct Sample {
  int round = 0;
  absl::Duration time;
  std::map<std::string, HeldResources> held;  // by daemon
  int64_t store_bytes = 0;
  double commits_kept = 0;
  bool is_full = false;  // all that is kept up to a bound is there
};

class Soak {
 public:
  Soak(LiveCluster& cluster, std::string store, uint64_t seed)
      : cluster_(cluster),
        store_(std::move(store)),
        environment_{cluster, starts_, violations_, ended_},
        calls_(environment_) {
    ReshardOptions in_place = BetweenStoragesOf("in-place", TensorsOf(1 << 20));
    in_place.binding = v1::BINDING_MODE_IN_PLACE;
    Add("reshards", std::make_unique<ReshardLoad>(
                        environment_, BetweenStoragesOf("reshards", TensorsOf(1 << 20))));
    Add("in place", std::make_unique<ReshardLoad>(environment_, std::move(in_place)));
    Add("cancelled", std::make_unique<CancelLoad>(
                         environment_, BetweenStoragesOf("cancelled", TensorsOf(16 << 20)), seed));
    Add("redistributions", std::make_unique<ReshardLoad>(environment_, SumsOf("sums", 768)));
    Add("pipelines", std::make_unique<PipelineLoad>(environment_));
  }

  void Run(absl::Duration length) {
    const absl::Duration begin = clock_.Monotonic();
    for (int round = 0; round < kRounds && !testing::Test::HasFailure(); ++round) {
      const absl::Duration end = begin + length * (round + 1) / kRounds;
      do {
        RunAndRest(std::min((end - clock_.Monotonic()) / 2, kBurstMax));
        TakeSample(round, clock_.Monotonic() - begin);
      } while (clock_.Monotonic() < end);
      p99s_.push_back(calls_.TakeP99());
    }
    EXPECT_THAT(violations_.found(), testing::IsEmpty());
    if (!testing::Test::HasFailure()) CheckAndTell();
  }

 private:
  static constexpr absl::Duration kBurstMax = absl::Seconds(2);

  void Add(const std::string& name, std::unique_ptr<Load> load) {
    loads_.emplace_back(name, std::move(load));
  }

  // As long as it ran it rests: half load.
  void RunAndRest(absl::Duration burst) {
    const absl::Duration begin = clock_.Monotonic();
    std::atomic<bool> stop = false;
    std::vector<Thread> threads;
    threads.emplace_back("calls", [&] { calls_.Run(stop); });
    for (auto& [name, load] : loads_) {
      threads.emplace_back("load", [&stop, &running = *load] { running.Run(stop); });
    }
    Pause(std::max(burst, absl::Milliseconds(100)));
    stop = true;
    for (Thread& thread : threads) thread.Join();
    EXPECT_TRUE(WaitUntil(kEndsWithin, [&] { return AllHaveEnded(cluster_.client()); }));
    Pause(std::min(clock_.Monotonic() - begin, kBurstMax));
  }

  void TakeSample(int round, absl::Duration time) {
    Sample sample{.round = round, .time = time, .store_bytes = FolderBytes(store_)};
    std::vector<std::string> daemons = cluster_.workers();
    daemons.emplace_back(LiveCluster::kController);
    for (const std::string& daemon : daemons) {
      ASSERT_OK_AND_ASSIGN(sample.held[daemon], HeldBy(cluster_, daemon));
    }
    const auto of_controller = [this](const char* metric) {
      return cluster_.Metric(LiveCluster::kController, metric);
    };
    ASSERT_OK_AND_ASSIGN(sample.commits_kept, of_controller("crossmesh_store_commits_kept"));
    ASSERT_OK_AND_ASSIGN(const double plans,
                         of_controller("crossmesh_controller_plan_cache_bytes"));
    sample.is_full =
        time >= kRequestIdsFor && ended_.count() >= kOperationsMin && plans >= 0.9 * kPlanBytesMax;
    samples_.push_back(std::move(sample));
  }

  // Of some rounds; rounds follow each other.
  std::span<const Sample> SamplesOf(int first, int end) const {
    const auto at = [&](int round) {
      return std::ranges::lower_bound(samples_, round, {}, &Sample::round);
    };
    return {at(first), at(end)};
  }

  bool IsWarm() const { return SamplesOf(kWarm, kRounds).front().is_full; }

  // The last third beside the one before: less than one that is fewer at times, and no more than
  // one that is more at times, is no leak.
  void CheckAndTell() {
    const std::span<const Sample> middle = SamplesOf(kWarm, 2 * kWarm);
    const std::span<const Sample> last = SamplesOf(2 * kWarm, kRounds);
    for (const auto& [daemon, held] : samples_.back().held) {
      EXPECT_LE(last.back().held.at(daemon).threads,
                middle.front().held.at(daemon).threads + kPoolThreads)
          << "threads of " << daemon << " over all rounds after the warm-up";
      const auto check = [&, &of = daemon](const char* what, auto number, auto slack) {
        const auto in = [&](const Sample& sample) { return number(sample.held.at(of)); };
        const auto before = in(*std::ranges::max_element(middle, {}, in));
        const auto after = in(*std::ranges::min_element(last, {}, in));
        EXPECT_LE(after, before + slack) << what << " of " << of;
        return absl::StrCat(", ", what, " ", before, " then ", after);
      };
      std::cout << "daemon " << daemon
                << check(
                       "descriptors", [](const HeldResources& h) { return h.descriptors; }, 0)
                << check(
                       "threads", [](const HeldResources& h) { return h.threads; },
                       IsWarm() ? 0 : kPoolThreads)
                << check(
                       "MB", [](const HeldResources& h) { return h.resident_mb; },
                       kHasAddressSanitizer ? 1e9 : kMemoryNoiseMb)
                << CheckAllocated(daemon) << "\n";
    }
    std::cout << "warm: " << (IsWarm() ? "yes" : "no") << "\n"
              << "samples of memory: " << SamplesOf(kWarm, kRounds).size() << "\n"
              << "store: bytes " << middle.front().store_bytes << " then "
              << last.back().store_bytes << "\n"
              << "commits kept: " << middle.front().commits_kept << " then "
              << last.back().commits_kept << "\n"
              << "p99 of calls: " << MedianP99(kWarm, 2 * kWarm) << " then "
              << MedianP99(2 * kWarm, kRounds) << "\n"
              << "load calls: " << calls_.Summary() << "\n";
    for (const auto& [name, load] : loads_) {
      std::cout << "load " << name << ": " << load->Summary() << "\n";
    }
  }

  // What is allocated grows no faster than it may, as far as these samples can tell.
  std::string CheckAllocated(const std::string& daemon) const {
    std::vector<Point> allocated;
    std::vector<Point> resident;
    for (const Sample& sample : SamplesOf(kWarm, kRounds)) {
      const HeldResources& held = sample.held.at(daemon);
      const double hours = absl::ToDoubleHours(sample.time);
      allocated.push_back({hours, held.allocated_mb});
      resident.push_back({hours, held.resident_mb});
    }
    const Slope slope = SlopeOf(allocated);
    if (IsWarm()) {
      EXPECT_LE(slope.value - 2 * slope.standard_error, kMbAnHourMax) << "allocated by " << daemon;
    }
    return absl::StrCat(", allocated MB ", allocated.front().y, " then ", allocated.back().y,
                        ", allocated an hour ", TextOf(slope), ", resident an hour ",
                        TextOf(SlopeOf(resident)));
  }

  static std::string TextOf(const Slope& slope) {
    return absl::StrFormat("%+.2f +- %.2f", slope.value, slope.standard_error);
  }

  absl::Duration MedianP99(int first, int end) const {
    std::vector<absl::Duration> p99s(p99s_.begin() + first, p99s_.begin() + end);
    std::ranges::sort(p99s);
    return p99s[p99s.size() / 2];
  }

  LiveCluster& cluster_;
  const std::string store_;
  const RealClock clock_;
  Starts starts_;
  Violations violations_;
  EndedOperations ended_;
  const LoadEnvironment environment_;
  TimedCalls calls_;
  std::vector<std::pair<std::string, std::unique_ptr<Load>>> loads_;
  std::vector<Sample> samples_;
  std::vector<absl::Duration> p99s_;  // by round
};

// CROSSMESH_SOAK_SECONDS, CROSSMESH_SEED.
TEST(SoakTest, WhatDaemonsHoldStaysAsItIs) {
  const uint64_t seed = FromEnvironment("CROSSMESH_SEED", std::random_device()());
  SCOPED_TRACE(absl::StrCat("CROSSMESH_SEED=", seed));
  const TemporaryFolder state;
  ASSERT_OK_AND_ASSIGN(
      const auto cluster,
      LiveCluster::Start(
          {.workers = {"node-0", "node-1", "node-2"},
           // So that of a long run the first third is enough for all that there is room for.
           .controller_flags = {"--state-dir", state.PathOf("store"), "--request-ids-for",
                                absl::FormatDuration(kRequestIdsFor), "--plan-memory-max",
                                absl::StrCat(kPlanBytesMax)}}));
  Soak(*cluster, state.PathOf("store"), seed)
      .Run(absl::Seconds(FromEnvironment("CROSSMESH_SOAK_SECONDS", 6)));
}

}  // namespace
}  // namespace crossmesh

// Controllers and workers killed at random moments under mixed load: nothing that was acknowledged
// is lost, nothing is done twice, nothing is mixed, and every job ends.

#include "common/base/clock.h"
#include "common/base/thread.h"
#include "common/testing/random_cases.h"
#include "common/testing/status_matchers.h"
#include "tests/live/live_cluster.h"
#include "tests/reliability/load_cases.h"
#include "tests/reliability/load_client.h"
#include "tests/reliability/metadata_load.h"
#include "tests/reliability/pipeline_load.h"
#include "tests/reliability/reshard_load.h"

#include <atomic>
#include <iostream>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

constexpr absl::Duration kGapMax = absl::Milliseconds(400);

// Lengths are parameters: CROSSMESH_KILLS, CROSSMESH_SEED, CROSSMESH_LARGE_BYTES.
class RandomKills {
 public:
  RandomKills(LiveCluster& cluster, uint64_t seed)
      : cluster_(cluster), random_(seed), environment_{cluster, starts_, violations_, ended_} {
    const auto large = static_cast<int64_t>(FromEnvironment("CROSSMESH_LARGE_BYTES", 16 << 20));
    ReshardOptions in_place = BetweenStoragesOf("in-place", TensorsOf(1 << 20));
    in_place.binding = v1::BINDING_MODE_IN_PLACE;
    Add("reshards", std::make_unique<ReshardLoad>(
                        environment_, BetweenStoragesOf("reshards", TensorsOf(1 << 20))));
    Add("in place", std::make_unique<ReshardLoad>(environment_, std::move(in_place)));
    Add("large",
        std::make_unique<ReshardLoad>(environment_, BetweenStoragesOf("large", TensorsOf(large))));
    Add("redistributions", std::make_unique<ReshardLoad>(environment_, SumsOf("sums", 768)));
    Add("pipelines", std::make_unique<PipelineLoad>(environment_));
    Add("meshes", std::make_unique<MetadataLoad>(environment_, "mesh-", seed));
  }

  void Run(uint64_t kills) {
    std::atomic<bool> stop = false;
    {
      std::vector<Thread> threads;
      for (auto& [name, load] : loads_) {
        threads.emplace_back("load", [&stop, &running = *load] { running.Run(stop); });
      }
      for (uint64_t i = 0; i < kills && !testing::Test::HasFailure(); ++i) KillOne();
      stop = true;
      const RealClock clock;
      const absl::Duration begin = clock.Monotonic();
      for (Thread& thread : threads) thread.Join();
      EXPECT_LT(clock.Monotonic() - begin, kEndsWithin) << "a client still waits for its job";
    }
    CheckAll();
  }

 private:
  void Add(const std::string& name, std::unique_ptr<Load> load) {
    loads_.emplace_back(name, std::move(load));
  }

  void KillOne() {
    // The moment is what is random: there is nothing to wait for.
    Mutex mutex;
    CondVar never;
    {
      const MutexLock lock(mutex);
      never.WaitFor(mutex, kGapMax * std::uniform_real_distribution<>()(random_));
    }
    const uint64_t which = random_() % (cluster_.workers().size() + 2);
    if (which >= cluster_.workers().size()) {
      ++controllers_;
      cluster_.Kill(LiveCluster::kController);
      EXPECT_OK(cluster_.StartController());
      return;
    }
    ++workers_;
    const std::string& worker = cluster_.workers()[which];
    starts_.Count(worker);
    cluster_.Kill(worker);
    EXPECT_OK(cluster_.StartWorker(worker));
    starts_.Count(worker);
  }

  void CheckAll() {
    EXPECT_OK(cluster_.WaitForAllWorkers());
    EXPECT_TRUE(WaitUntil(kEndsWithin, [&] { return AllHaveEnded(cluster_.client()); }))
        << "a job has not ended";
    for (auto& [name, load] : loads_) load->Check();
    EXPECT_THAT(violations_.found(), testing::IsEmpty());
    std::cout << "killed: controllers " << controllers_ << ", workers " << workers_ << "\n";
    for (const auto& [name, load] : loads_) {
      std::cout << "load " << name << ": " << load->Summary() << "\n";
    }
  }

  LiveCluster& cluster_;
  std::mt19937_64 random_;
  Starts starts_;
  Violations violations_;
  EndedOperations ended_;
  const LoadEnvironment environment_;
  std::vector<std::pair<std::string, std::unique_ptr<Load>>> loads_;
  int controllers_ = 0;
  int workers_ = 0;
};

TEST(RandomKillsTest, NothingIsLostDoneTwiceOrMixed) {
  const uint64_t seed = FromEnvironment("CROSSMESH_SEED", std::random_device()());
  SCOPED_TRACE(absl::StrCat("CROSSMESH_SEED=", seed));
  const TemporaryFolder state;
  ASSERT_OK_AND_ASSIGN(
      const auto cluster,
      LiveCluster::Start({.workers = {"node-0", "node-1", "node-2"},
                          .controller_flags = {"--state-dir", state.PathOf("store")}}));
  RandomKills(*cluster, seed).Run(FromEnvironment("CROSSMESH_KILLS", 20));
}

}  // namespace
}  // namespace crossmesh

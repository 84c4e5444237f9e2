// Controllers and workers killed at random moments under mixed load: nothing that was acknowledged
// is lost, nothing is done twice, nothing is mixed, and every operation ends.

#include "common/base/clock.h"
#include "common/base/thread.h"
#include "common/testing/status_matchers.h"
#include "tests/live/live_cluster.h"
#include "tests/reliability/metadata_load.h"
#include "tests/reliability/reshard_load.h"

#include <atomic>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <absl/strings/str_cat.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

constexpr absl::Duration kEndsWithin = absl::Seconds(30);
constexpr absl::Duration kGapMax = absl::Milliseconds(400);

// Lengths are parameters: CROSSMESH_KILLS and CROSSMESH_SEED.
uint64_t FromEnvironment(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

class RandomKills {
 public:
  RandomKills(LiveCluster& cluster, uint64_t seed)
      : cluster_(cluster), random_(seed), environment_{cluster, starts_, violations_} {
    for (int i = 0; i < 2; ++i) {
      loads_.push_back(std::make_unique<ReshardLoad>(
          environment_, ReshardOptions{.manifest = TensorsOf(1 << 20),
                                       .source_storage = absl::StrCat("from-", i),
                                       .destination_storage = absl::StrCat("to-", i)}));
    }
    for (int i = 0; i < 2; ++i) {
      absl::StatusOr<Client> client =
          Client::Connect(cluster.controller_address(), {.retry_for = absl::Seconds(1)});
      EXPECT_OK(client.status());
      metadata_.push_back(std::make_unique<MetadataLoad>(
          *std::move(client), absl::StrCat("mesh-", i, "-"), seed + i, violations_));
    }
  }

  void Run(uint64_t kills) {
    std::atomic<bool> stop = false;
    {
      std::vector<Thread> threads;
      for (auto& load : loads_) threads.emplace_back("reshards", [&] { load->Run(stop); });
      for (auto& load : metadata_) threads.emplace_back("meshes", [&] { load->Run(stop); });
      for (uint64_t i = 0; i < kills && !testing::Test::HasFailure(); ++i) KillOne();
      stop = true;
      for (Thread& thread : threads) thread.Join();
    }
    CheckAll();
  }

 private:
  void KillOne() {
    const RealClock clock;
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
    const bool all_ended = WaitUntil(kEndsWithin, [&] {
      const auto operations = cluster_.client().ListOperations(1000);
      return operations.ok() && std::ranges::all_of(*operations, [](const v1::Operation& o) {
               return o.has_end_time();
             });
    });
    EXPECT_TRUE(all_ended) << "an operation has not ended";
    for (auto& load : loads_) load->CheckRecords();
    for (auto& load : metadata_) load->Check();
    EXPECT_THAT(violations_.found(), testing::IsEmpty());
    Print();
  }

  void Print() const {
    std::cout << "killed: controllers " << controllers_ << ", workers " << workers_;
    for (const auto& load : loads_) {
      std::cout << "; reshards refused " << load->counts().refused;
      for (const auto& [state, count] : load->counts().ended) {
        std::cout << ", " << state << " " << count;
      }
    }
    for (const auto& load : metadata_) std::cout << "; meshes changed " << load->acknowledged();
    std::cout << "\n";
  }

  LiveCluster& cluster_;
  std::mt19937_64 random_;
  Starts starts_;
  Violations violations_;
  const ReshardLoad::Environment environment_;
  std::vector<std::unique_ptr<ReshardLoad>> loads_;
  std::vector<std::unique_ptr<MetadataLoad>> metadata_;
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

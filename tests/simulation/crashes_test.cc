// Crashes before effects of processes: some, or all of them in as many short histories as
// CROSSMESH_SIMULATION_SEEDS says.

#include "tests/simulation/crashes.h"

#include "common/testing/random_cases.h"
#include "tests/simulation/shrinking.h"

#include <cstdint>
#include <iostream>

#include <gtest/gtest.h>

namespace crossmesh {
namespace {

constexpr uint64_t kEveryWhich = 37;

TEST(CrashesBeforeEffects, LoseNothingThatWasAcknowledged) {
  const uint64_t seeds = FromEnvironment("CROSSMESH_SIMULATION_SEEDS", 0);
  const uint64_t first = FromEnvironment("CROSSMESH_TEST_SEED", 1);
  int64_t histories = 0;
  // One with etcd and one with a state folder, at least.
  for (uint64_t seed = first; seed < first + (seeds == 0 ? 2 : seeds); ++seed) {
    const Crashes crashes = CrashBeforeEffects(seed, seeds == 0 ? kEveryWhich : 1);
    histories += crashes.histories;
    ASSERT_FALSE(crashes.violated.has_value()) << TellHistory(*crashes.violated);
  }
  std::cout << "crashes: " << histories << " histories\n";
}

TEST(CrashesBeforeEffects, AreOfHistoriesWithOneOfEverything) {
  for (const uint64_t seed : {1, 2}) {
    const SimulationResult result = RunSimulation({.seed = seed, .is_short = true});
    EXPECT_EQ(result.violation.value_or("nothing"), "nothing");
    EXPECT_EQ(result.ended, 5) << seed;
    // One client cancels, and sometimes another one.
    EXPECT_GE(result.committed, 3) << seed;
  }
}

}  // namespace
}  // namespace crossmesh

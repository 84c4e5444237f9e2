#include "tests/simulation/simulation.h"

#include "common/testing/random_cases.h"
#include "tests/simulation/shrinking.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <string>

#include <absl/strings/str_cat.h>
#include <absl/time/time.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

TEST(Simulation, NothingThatMustNeverBeHappens) {
  int64_t committed = 0;
  int64_t iterations = 0;
  const int64_t cases = RandomCases(6);
  const uint64_t first = FromEnvironment("CROSSMESH_TEST_SEED", 1);
  for (uint64_t seed = first; seed < first + cases; ++seed) {
    const SimulationResult result = RunSimulation({.seed = seed});
    committed += result.committed;
    iterations += result.iterations;
    if (!result.violation.has_value()) continue;
    FAIL() << "CROSSMESH_CASES=1 CROSSMESH_TEST_SEED=" << seed << ": " << *result.violation << "\n"
           << ShortestHistory({.seed = seed});
  }
  EXPECT_GT(committed, cases) << "operations seldom succeed, so little is tested";
  EXPECT_GT(iterations, cases) << "iterations are seldom complete";
}

// tests/reliability/run takes days of them.
CalmHistory Calm() {
  return {.length = absl::Minutes(FromEnvironment("CROSSMESH_CALM_MINUTES", 30)),
          .reshard_every = absl::Seconds(FromEnvironment("CROSSMESH_CALM_PAUSE_SECONDS", 60))};
}

// Of those that were asked for at least this part must commit.
void ExpectNoViolation(const CalmHistory& calm, double least_committed) {
  const uint64_t first = FromEnvironment("CROSSMESH_TEST_SEED", 1);
  for (const uint64_t seed : {first, first + 1}) {  // with etcd, and with a state folder
    const SimulationResult result = RunSimulation({.seed = seed, .calm = calm});
    EXPECT_EQ(result.violation.value_or("nothing"), "nothing") << seed;
    const double asked = absl::FDivDuration(calm.length, calm.reshard_every);
    EXPECT_GT(static_cast<double>(result.committed), least_committed * asked) << seed;
    const double faults = absl::FDivDuration(calm.length, calm.fault_every);
    EXPECT_NEAR(static_cast<double>(result.faults.size()), faults, faults / 2) << seed;
  }
}

TEST(Simulation, CalmHistoriesHaveNoViolation) { ExpectNoViolation(Calm(), 0.5); }

TEST(Simulation, CalmHistoriesWithFaultsHaveNoViolation) {
  CalmHistory calm = Calm();
  calm.fault_every = absl::Seconds(FromEnvironment("CROSSMESH_CALM_FAULT_SECONDS", 60));
  ExpectNoViolation(calm, 0.25);
}

TEST(Simulation, TheSameSeedGivesTheSameLog) {
  for (const uint64_t seed : {3, 4}) {  // with etcd, and with a state folder
    const SimulationOptions options{.seed = seed, .keeps_log = true};
    EXPECT_EQ(RunSimulation(options).log, RunSimulation(options).log) << seed;
  }
}

// Hashes and addresses differ from process to process, and must not show.
TEST(SimulationDeathTest, AnotherProcessHasTheSameLogs) {
  // A process of its own, which begins this test anew.
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  std::string digests;
  // Of the first 50 seeds, seven differed when one hash table was told in its order.
  const int64_t cases = std::min<int64_t>(RandomCases(6), 50);
  const uint64_t first = FromEnvironment("CROSSMESH_TEST_SEED", 1);
  for (uint64_t seed = first; seed < first + cases; ++seed) {
    absl::StrAppend(&digests, "seed ", seed, ": ", absl::Hex(RunSimulation({.seed = seed}).digest),
                    "\n");
  }
  const auto tell = [&] {
    std::cerr << digests;
    std::exit(EXIT_SUCCESS);
  };
  EXPECT_EXIT(tell(), testing::ExitedWithCode(EXIT_SUCCESS), testing::HasSubstr(digests));
}

}  // namespace
}  // namespace crossmesh

// Every bug that is planted must be found, in as many seeds as CROSSMESH_SIMULATION_SEEDS says.

#include "common/testing/random_cases.h"
#include "tests/simulation/crashes.h"
#include "tests/simulation/planted_bug.h"
#include "tests/simulation/shrinking.h"
#include "tests/simulation/simulation.h"

#include <cstdint>
#include <iostream>
#include <optional>
#include <string>

#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

class PlantedBugs : public testing::TestWithParam<std::string> {};

TEST_P(PlantedBugs, IsFound) {
  const auto seeds = static_cast<int64_t>(FromEnvironment("CROSSMESH_SIMULATION_SEEDS", 0));
  if (seeds == 0) GTEST_SKIP() << "takes minutes: tests/reliability/run does it";
  PlantBug(GetParam());
  int64_t seed = 1;
  while (seed <= seeds && !RunSimulation({.seed = static_cast<uint64_t>(seed)}).violation) ++seed;
  ASSERT_LE(seed, seeds) << "bug " << GetParam() << " was not found in " << seeds << " seeds";
  const std::string history = ShortestHistory({.seed = static_cast<uint64_t>(seed)});
  EXPECT_FALSE(absl::StrContains(history, "nothing, when it is run again")) << history;
  RecordProperty("seed", absl::StrCat(seed));
  std::cout << "bug " << GetParam() << ": " << history.substr(0, history.find("the last")) << "\n";
  PlantBug("");
}

INSTANTIATE_TEST_SUITE_P(All, PlantedBugs,
                         testing::Values("commit_before_all_acks", "duplicate_execution",
                                         "early_completion", "integer_wrap",
                                         "lease_without_fencing", "lost_cancel",
                                         "missing_epoch_check", "missing_fsync",
                                         "repeated_iteration", "staging_leak", "unchecked_payload",
                                         "unchecked_process", "unchecked_session", "unnoticed_loss",
                                         "unrecorded_progress", "untold_end",
                                         "watch_gap_at_compaction", "wrong_revision_pin"),
                         [](const testing::TestParamInfo<std::string>& bug) { return bug.param; });

class PlantedBugsOfCrashes : public testing::TestWithParam<std::string> {};

// Two short histories, with each kind of store, are enough.
TEST_P(PlantedBugsOfCrashes, AreFoundBeforeSomeEffect) {
  if (FromEnvironment("CROSSMESH_SIMULATION_SEEDS", 0) == 0) {
    GTEST_SKIP() << "takes minutes: tests/reliability/run does it";
  }
  ASSERT_FALSE(CrashBeforeEffects(1).violated.has_value());
  PlantBug(GetParam());
  std::optional<SimulationOptions> violated = CrashBeforeEffects(1).violated;
  if (!violated.has_value()) violated = CrashBeforeEffects(2).violated;
  ASSERT_TRUE(violated.has_value()) << "bug " << GetParam() << " was not found by any crash";
  const std::string history = TellHistory(*violated);
  std::cout << "crashes: " << GetParam() << ": " << history.substr(0, history.find("the last"))
            << "\n";
  PlantBug("");
}

INSTANTIATE_TEST_SUITE_P(All, PlantedBugsOfCrashes,
                         testing::Values("commit_before_all_acks", "duplicate_execution",
                                         "missing_fsync"),
                         [](const testing::TestParamInfo<std::string>& bug) { return bug.param; });

}  // namespace
}  // namespace crossmesh

#include "controller/membership/registration_gate.h"

#include "common/testing/random_cases.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <random>
#include <string>

#include <absl/strings/str_cat.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

constexpr absl::Duration kStart = absl::Hours(5);  // a monotonic clock begins anywhere

TEST(RegistrationGateTest, AsManyAsTheBurstComeInAtOnceAndTheNextOnesWaitInLine) {
  RegistrationGate gate({.per_second = 10, .burst = 3});
  for (int i = 0; i < 3; ++i) EXPECT_EQ(gate.Admit(kStart), std::nullopt);
  EXPECT_EQ(gate.Admit(kStart), absl::Milliseconds(100));
  EXPECT_EQ(gate.Admit(kStart), absl::Milliseconds(200));
  EXPECT_EQ(gate.Admit(kStart + absl::Milliseconds(100)), std::nullopt);
  EXPECT_EQ(gate.Admit(kStart + absl::Milliseconds(100)), absl::Milliseconds(200));
}

TEST(RegistrationGateTest, ATimeWithoutAnySavesNoMoreThanTheBurst) {
  RegistrationGate gate({.per_second = 10, .burst = 3});
  for (int i = 0; i < 3; ++i) EXPECT_EQ(gate.Admit(kStart), std::nullopt);
  const absl::Duration later = kStart + absl::Hours(1);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(gate.Admit(later), std::nullopt);
  EXPECT_NE(gate.Admit(later), std::nullopt);
}

TEST(RegistrationGateTest, NobodyIsSentAwayForLongerThanTheLimit) {
  RegistrationGate gate({.per_second = 1, .burst = 1, .wait_max = absl::Seconds(5)});
  for (int i = 0; i < 100; ++i) {
    const std::optional<absl::Duration> wait = gate.Admit(kStart);
    if (wait.has_value()) EXPECT_LE(*wait, absl::Seconds(5));
  }
}

// Workers that come at once, and again when they are told to, all get in: no later than the rate
// allows, with a few tries each, and never more in a second than burst and rate allow.
TEST(RegistrationGateTest, AStormIsOverAsSoonAsTheRateAllows) {
  const uint64_t seed = FromEnvironment("CROSSMESH_TEST_SEED", std::random_device()());
  SCOPED_TRACE(absl::StrCat("CROSSMESH_TEST_SEED=", seed));
  std::mt19937_64 random(seed);
  for (int run = 0; run < 20; ++run) {
    const int workers = 1 + static_cast<int>(random() % 3000);
    RegistrationGate gate({});
    std::multimap<absl::Duration, int> arrivals;  // with the tries so far
    for (int i = 0; i < workers; ++i) {
      arrivals.emplace(kStart + absl::Milliseconds(static_cast<int64_t>(random() % 1000)), 0);
    }
    absl::Duration last;
    int tries_most = 0;
    for (int admitted = 0; admitted < workers;) {
      const auto [now, tries] = *arrivals.begin();
      arrivals.erase(arrivals.begin());
      const std::optional<absl::Duration> wait = gate.Admit(now);
      if (wait.has_value()) {
        arrivals.emplace(now + *wait, tries + 1);
        continue;
      }
      last = now;
      tries_most = std::max(tries_most, tries);
      ASSERT_LE(++admitted, 501 + 500 * absl::ToDoubleSeconds(now - kStart));
    }
    EXPECT_LE(last - kStart, absl::Seconds(1 + workers / 500.0 + 0.5)) << workers;
    EXPECT_LE(tries_most, 10) << workers;
  }
}

}  // namespace
}  // namespace crossmesh

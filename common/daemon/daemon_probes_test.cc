#include "common/daemon/daemon_probes.h"

#include "common/daemon/watchdog.h"

#include <functional>

#include <gtest/gtest.h>

namespace crossmesh {
namespace {

TEST(DaemonProbesTest, ADaemonIsAliveBeforeItServesAndStartsOnce) {
  DaemonProbes probes;
  EXPECT_TRUE(probes.Live().is_good);
  EXPECT_FALSE(probes.Ready().is_good);
  EXPECT_FALSE(probes.Started().is_good);
  EXPECT_EQ(probes.Ready().reason, "starting");
  probes.SetServing();
  EXPECT_TRUE(probes.Ready().is_good);
  EXPECT_TRUE(probes.Started().is_good);
  probes.SetNotServing("stopping");
  EXPECT_FALSE(probes.Ready().is_good);
  EXPECT_EQ(probes.Ready().reason, "stopping");
  EXPECT_TRUE(probes.Started().is_good);
  EXPECT_TRUE(probes.Live().is_good) << "it must not be ended while it stops";
}

TEST(DaemonProbesTest, WhatIsSilentIsNamed) {
  Watchdog watchdog({});
  watchdog.Watch("data loop", [](const std::function<void()>&) {});
  DaemonProbes probes;
  probes.SetWatchdog(&watchdog);
  for (int seconds = 0; seconds <= 5; ++seconds) watchdog.Look();
  EXPECT_FALSE(probes.Live().is_good);
  EXPECT_EQ(probes.Live().reason, "data loop: silent for 5.00 s");
  probes.SetWatchdog(nullptr);
  EXPECT_TRUE(probes.Live().is_good);
}

}  // namespace
}  // namespace crossmesh

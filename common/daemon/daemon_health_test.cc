#include "common/daemon/daemon_health.h"

#include "common/base/unique_fd.h"
#include "common/testing/temporary_folder.h"

#include <array>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <string>

#include <absl/strings/string_view.h>
#include <absl/time/time.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

namespace crossmesh {
namespace {

// What a daemon's configuration is in its metrics.
double ValueOf(const DaemonMetrics& metrics, absl::string_view name, size_t place = 0) {
  for (const MetricFamily* family : metrics.metrics().families()) {
    if (family->name().name == name) return family->value(place);
  }
  ADD_FAILURE() << name;
  return -1;
}

TEST(DaemonMetricsTest, AConfigurationHasANumberOfItsOwn) {
  DaemonMetrics metrics, other;
  metrics.ConfigurationLoaded("log-level=\"info\"", absl::FromUnixSeconds(7));
  EXPECT_EQ(ValueOf(metrics, "crossmesh_config_last_reload_successful"), 1);
  EXPECT_EQ(ValueOf(metrics, "crossmesh_config_last_reload_success_timestamp_seconds"), 7);
  const double hash = ValueOf(metrics, "crossmesh_config_hash");
  EXPECT_GT(hash, 0);
  EXPECT_EQ(hash, static_cast<double>(static_cast<int64_t>(hash))) << "a sample holds it exactly";
  other.ConfigurationLoaded("log-level=\"info\"", absl::FromUnixSeconds(8));
  EXPECT_EQ(ValueOf(other, "crossmesh_config_hash"), hash);
  other.ConfigurationLoaded("log-level=\"debug\"", absl::FromUnixSeconds(8));
  EXPECT_NE(ValueOf(other, "crossmesh_config_hash"), hash);
}

TEST(DaemonMetricsTest, AReloadThatFailsLeavesWhatHolds) {
  DaemonMetrics metrics;
  metrics.ConfigurationLoaded("a", absl::FromUnixSeconds(7));
  const double hash = ValueOf(metrics, "crossmesh_config_hash");
  metrics.Reloaded(false);
  EXPECT_EQ(ValueOf(metrics, "crossmesh_config_last_reload_successful"), 0);
  EXPECT_EQ(ValueOf(metrics, "crossmesh_config_hash"), hash);
  EXPECT_EQ(ValueOf(metrics, "crossmesh_config_reloads_total", 1), 1);
  metrics.Reloaded(true);
  EXPECT_EQ(ValueOf(metrics, "crossmesh_config_last_reload_successful"), 1);
  EXPECT_EQ(ValueOf(metrics, "crossmesh_config_reloads_total", 0), 1);
}

// A service manager that wants to hear of the watchdog.
class WatchdogOfManagerTest : public testing::Test {
 protected:
  void SetUp() override {
    const std::string path = folder_.PathOf("notify");
    sockaddr_un address{.sun_family = AF_UNIX};
    path.copy(address.sun_path, sizeof(address.sun_path));
    manager_.Reset(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    ASSERT_EQ(bind(manager_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)),
              0);
    setenv("NOTIFY_SOCKET", path.c_str(), 1);
    setenv("WATCHDOG_USEC", "30000000", 1);
  }
  ~WatchdogOfManagerTest() override {
    unsetenv("NOTIFY_SOCKET");
    unsetenv("WATCHDOG_USEC");
  }
  std::string Told(int patience_ms) {
    pollfd waiting = {.fd = manager_.get(), .events = POLLIN};
    if (poll(&waiting, 1, patience_ms) != 1) return "";
    std::array<char, 64> text;
    const ssize_t size = recv(manager_.get(), text.data(), text.size(), 0);
    return size < 0 ? "" : std::string(text.data(), static_cast<size_t>(size));
  }

  const TemporaryFolder folder_;
  UniqueFd manager_;
};

TEST_F(WatchdogOfManagerTest, ItIsToldWhileAllIsAlive) {
  DaemonHealth health;
  EXPECT_EQ(Told(/*patience_ms=*/20'000), "WATCHDOG=1");
}

TEST_F(WatchdogOfManagerTest, ItIsToldNothingMoreOfWhatIsSilent) {
  DaemonHealth health;
  health.watchdog.Watch("loop", [](const std::function<void()>&) {});
  for (int seconds = 0; seconds < 6; ++seconds) health.watchdog.Look();
  while (!Told(/*patience_ms=*/0).empty()) {
  }
  health.watchdog.Look();
  EXPECT_EQ(Told(/*patience_ms=*/0), "");
  health.watchdog.Forget();
}

TEST(DaemonHealthTest, SignalsAreLeftToWhatWaitsForThem) {
  sigset_t before, after;
  pthread_sigmask(SIG_BLOCK, nullptr, &before);
  DaemonHealth health;
  pthread_sigmask(SIG_BLOCK, nullptr, &after);
  EXPECT_EQ(sigismember(&before, SIGTERM), sigismember(&after, SIGTERM));
}

TEST(DaemonHealthDeathTest, AThreadThatStaysSilentEndsTheProcessWithItsStacks) {
  EXPECT_EXIT(
      {
        DaemonHealth health;
        health.watchdog.Watch("data loop", [](const std::function<void()>&) {});
        for (int seconds = 0; seconds <= 15; ++seconds) health.watchdog.Look();
      },
      testing::KilledBySignal(SIGABRT), "data loop: silent for 15.00 s(.|\n)*thread [0-9]+ ");
}

}  // namespace
}  // namespace crossmesh

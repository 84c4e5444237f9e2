#include "common/daemon/daemon_main.h"

#include "common/base/version.h"

#include <cstdlib>
#include <stdexcept>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

int RunWith(std::vector<const char*> arguments,
            absl::FunctionRef<absl::Status(const DaemonFlags&)> run) {
  CLI::App app("A daemon", "daemon");
  arguments.insert(arguments.begin(), "daemon");
  return RunDaemon(app, static_cast<int>(arguments.size()), arguments.data(), run);
}

int RunTo(const absl::Status& status) {
  return RunWith({}, [&](const DaemonFlags&) { return status; });
}

TEST(DaemonMainTest, RunsWithTheFlagsOfEveryDaemon) {
  std::string ready_file;
  EXPECT_EQ(RunWith({"--ready-file", "/tmp/x", "--log-level", "error"},
                    [&](const DaemonFlags& flags) {
                      ready_file = flags.ready_file;
                      return absl::OkStatus();
                    }),
            EXIT_SUCCESS);
  EXPECT_EQ(ready_file, "/tmp/x");
}

TEST(DaemonMainTest, TheExitCodeSaysWhatFailed) {
  EXPECT_EQ(RunTo(absl::OkStatus()), EXIT_SUCCESS);
  EXPECT_EQ(RunTo(absl::InvalidArgumentError("flag")), kExitUsage);
  EXPECT_EQ(RunTo(absl::FailedPreconditionError("address")), kExitAddressInUse);
  EXPECT_EQ(RunTo(absl::UnavailableError("disk")), kExitFailure);
  EXPECT_EQ(
      RunWith({}, [](const DaemonFlags&) -> absl::Status { throw std::runtime_error("bug"); }),
      kExitFailure);
}

TEST(DaemonMainTest, WrongFlagsAreUsageAndHelpIsNot) {
  const auto unreached = [](const DaemonFlags&) -> absl::Status {
    ADD_FAILURE() << "it ran";
    return absl::OkStatus();
  };
  EXPECT_EQ(RunWith({"--no-such-flag"}, unreached), kExitUsage);
  EXPECT_EQ(RunWith({"--log-level", "loud"}, unreached), kExitUsage);
  EXPECT_EQ(RunWith({"--help"}, unreached), EXIT_SUCCESS);
}

TEST(DaemonMainTest, TheVersionIsPrintedAndNothingRuns) {
  testing::internal::CaptureStdout();
  const int exit_code = RunWith({"--version"}, [](const DaemonFlags&) -> absl::Status {
    ADD_FAILURE() << "it ran";
    return absl::OkStatus();
  });
  EXPECT_EQ(testing::internal::GetCapturedStdout(), VersionLine("daemon") + "\n");
  EXPECT_EQ(exit_code, EXIT_SUCCESS);
}

}  // namespace
}  // namespace crossmesh

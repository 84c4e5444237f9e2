#include "common/daemon/daemon_main.h"

#include "common/base/unique_fd.h"
#include "common/base/version.h"

#include <cstdlib>
#include <iostream>
#include <stdexcept>
#include <string>
#include <vector>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

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
  EXPECT_EQ(RunTo(WithExitCode(absl::FailedPreconditionError("lock"), kExitStateLocked)),
            kExitStateLocked);
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

// Standard output of this process on a file, until this goes.
class ScopedStandardOutput {
 public:
  explicit ScopedStandardOutput(const char* path) : before_(dup(STDOUT_FILENO)) {
    const UniqueFd file(open(path, O_WRONLY | O_CLOEXEC));
    EXPECT_GE(dup2(file.get(), STDOUT_FILENO), 0);
  }
  ~ScopedStandardOutput() {
    dup2(before_.get(), STDOUT_FILENO);
    std::cout.clear();
  }
  ScopedStandardOutput(const ScopedStandardOutput&) = delete;
  ScopedStandardOutput& operator=(const ScopedStandardOutput&) = delete;

 private:
  const UniqueFd before_;
};

TEST(DaemonMainTest, HelpAndVersionThatStandardOutputDoesNotTakeAreFailures) {
  for (const char* flag : {"--help", "--version"}) {
    testing::internal::CaptureStderr();
    int exit_code = EXIT_SUCCESS;
    {
      const ScopedStandardOutput full("/dev/full");
      exit_code = RunWith({flag}, [](const DaemonFlags&) { return absl::OkStatus(); });
    }
    EXPECT_EQ(exit_code, kExitFailure) << flag;
    EXPECT_EQ(testing::internal::GetCapturedStderr(),
              "daemon: error: cannot write to standard output: No space left on device\n");
  }
}

}  // namespace
}  // namespace crossmesh

#include "common/daemon/configuration.h"

#include "common/daemon/daemon_main.h"
#include "common/testing/status_matchers.h"
#include "common/testing/temporary_folder.h"

#include <csignal>
#include <fstream>
#include <iterator>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A daemon with a few flags, one of which may change while it runs.
class ConfigurationTest : public ::testing::Test {
 protected:
  ConfigurationTest() {
    app_.add_option("--listen", listen_, "Where")->required();
    app_.add_option("--seconds", seconds_, "How long")->capture_default_str();
    app_.add_option("--level", level_, "How loud")
        ->check(CLI::IsMember({"info", "debug"}))
        ->capture_default_str();
    app_.add_flag("--insecure", insecure_, "Whether");
  }

  void Write(const std::string& text) { std::ofstream(path_) << text; }
  // With the file, and what else the command line says.
  void Open(std::vector<std::string> more = {}) {
    texts_ = {"daemon", "--config", path_};
    texts_.insert(texts_.end(), more.begin(), more.end());
    arguments_.clear();
    for (const std::string& text : texts_) arguments_.push_back(text.c_str());
    configuration_ =
        std::make_unique<Configuration>(app_, static_cast<int>(arguments_.size()),
                                        arguments_.data(), std::set<std::string>{"level"});
  }
  std::string Error() {
    try {
      configuration_->Parse();
    } catch (const CLI::ParseError& error) {
      const std::string explained = configuration_->ExplainError(error);
      return explained.empty() ? error.what() : explained;
    }
    return "";
  }

  const TemporaryFolder folder_;
  const std::string path_ = folder_.PathOf("daemon.toml");
  CLI::App app_{"A daemon", "daemon"};
  std::vector<std::string> listen_;
  double seconds_ = 10;
  std::string level_ = "info";
  bool insecure_ = false;
  std::vector<std::string> texts_;
  std::vector<const char*> arguments_;
  std::unique_ptr<Configuration> configuration_;
};

TEST_F(ConfigurationTest, TheFileSetsFlagsAndTheCommandLineGoesBeforeIt) {
  Write(
      "# where\nlisten = [\"a:1\", \"b:2\"]\nseconds = 2.5\nlevel = \"debug\"\ninsecure = true\n");
  Open({"--seconds", "7"});
  configuration_->Parse();
  EXPECT_THAT(listen_, ElementsAre("a:1", "b:2"));
  EXPECT_EQ(seconds_, 7);
  EXPECT_EQ(level_, "debug");
  EXPECT_TRUE(insecure_);
  EXPECT_THAT(configuration_->Text(), HasSubstr("level=\"debug\""));
}

TEST_F(ConfigurationTest, AKeyThatIsNoFlagIsNamedWithItsLine) {
  Write("listen = \"a:1\"\n\nsecond = 2\n");
  Open();
  EXPECT_EQ(Error(), path_ + ":3: expected a flag of daemon that a file may set, found \"second\"");
}

TEST_F(ConfigurationTest, AFlagThatIsTheCommandLinesAloneIsNamedWithItsLine) {
  Write("listen = \"a:1\"\nconfig = \"other\"\n");
  Open();
  EXPECT_EQ(Error(), path_ + ":2: expected a flag of daemon that a file may set, found \"config\"");
}

TEST_F(ConfigurationTest, ABadValueIsNamed) {
  Write("listen = \"a:1\"\nlevel = \"loud\"\n");
  Open();
  EXPECT_THAT(Error(), HasSubstr("--level"));
}

TEST_F(ConfigurationTest, ARequiredFlagMustBeSomewhere) {
  Write("level = \"debug\"\n");
  Open();
  EXPECT_THAT(Error(), HasSubstr("--listen is required"));
}

TEST_F(ConfigurationTest, AFileThatIsNotThereIsNamed) {
  Open({"--listen", "a:1"});
  EXPECT_THAT(Error(), HasSubstr("daemon.toml"));
}

TEST_F(ConfigurationTest, AReloadSetsWhatMayChange) {
  Write("listen = \"a:1\"\n");
  Open();
  configuration_->Parse();
  Write("listen = \"a:1\"\nlevel = \"debug\"\n");
  ASSERT_OK(configuration_->Reload());
  EXPECT_EQ(level_, "debug");
  EXPECT_THAT(listen_, ElementsAre("a:1"));
}

TEST_F(ConfigurationTest, AReloadThatChangesMoreIsRefusedAsAWhole) {
  Write("listen = \"a:1\"\n");
  Open();
  configuration_->Parse();
  Write("listen = \"a:2\"\nlevel = \"debug\"\n");
  EXPECT_THAT(configuration_->Reload(),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("listen"), HasSubstr("a:1"), HasSubstr("a:2"))));
  // And again: what holds is what the daemon began with.
  EXPECT_THAT(configuration_->Reload(), StatusIs(absl::StatusCode::kFailedPrecondition));
  Write("listen = \"a:1\"\nlevel = \"debug\"\n");
  EXPECT_OK(configuration_->Reload());
}

TEST_F(ConfigurationTest, AReloadOfAFileThatDoesNotParseIsRefused) {
  Write("listen = \"a:1\"\n");
  Open();
  configuration_->Parse();
  Write("listen = \"a:1\"\nnonsense = 1\n");
  EXPECT_THAT(configuration_->Reload(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(":2: expected a flag")));
  Write("listen = \"a:1\"\n");
  EXPECT_OK(configuration_->Reload());
}

TEST(DaemonConfigurationTest, SighupReloadsAndAnotherSignalStops) {
  ASSERT_OK_AND_ASSIGN(const StopSignals signals, StopSignals::Block({SIGTERM, SIGHUP}));
  int reloads = 0;
  DaemonFlags flags;
  flags.reload = [&] {
    ++reloads;
    raise(reloads < 2 ? SIGHUP : SIGTERM);
  };
  raise(SIGHUP);
  EXPECT_EQ(WaitUntilStopped(signals, flags), SIGTERM);
  EXPECT_EQ(reloads, 2);
}

TEST(DaemonConfigurationTest, CheckingRunsNothingAndPrintsAllFlags) {
  CLI::App app("A daemon", "daemon");
  const char* arguments[] = {"daemon", "--check-config", "--log-level", "debug"};
  testing::internal::CaptureStdout();
  bool only_checked = false;
  EXPECT_EQ(RunDaemon(app, std::size(arguments), arguments,
                      [&](const DaemonFlags& flags) {
                        only_checked = flags.only_check;
                        return absl::OkStatus();
                      }),
            0);
  EXPECT_TRUE(only_checked);
  EXPECT_THAT(testing::internal::GetCapturedStdout(), HasSubstr("log-level=\"debug\""));
}

}  // namespace
}  // namespace crossmesh

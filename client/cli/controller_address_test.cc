// Which controller a command asks, when its flag, the flag before it and the variable differ.

#include "client/cli/testing/program_run.h"
#include "common/rpc/server.h"
#include "common/testing/status_matchers.h"
#include "common/testing/temporary_folder.h"

#include <map>
#include <memory>
#include <string>
#include <vector>

#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_split.h>
#include <absl/strings/string_view.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace crossmesh {
namespace {

using ::testing::HasSubstr;

// Refused before anything is sent, by a message that has it: whoever meets it need not wait.
constexpr const char* kWrong = "192.0.2.1:7400";

constexpr const char* kAnyReshard =
    "--manifest client/cli/testdata/small.json --source 'x=2 on a.0,b.0' --source-layout '[x, -]' "
    "--destination 'y=2 on c.0,d.0' --destination-layout '[-, y]'";

// The commands that a help lists: the first words of the lines below "Subcommands:".
std::vector<std::string> CommandsIn(const std::string& help) {
  std::vector<std::string> commands;
  bool below = false;
  for (const absl::string_view line : absl::StrSplit(help, '\n')) {
    if (line == "Subcommands:") {
      below = true;
    } else if (below && !absl::StartsWith(line, "  ")) {
      break;
    } else if (below && !absl::StartsWith(line, "   ")) {
      commands.emplace_back(line.substr(2, line.find(' ', 2) - 2));
    }
  }
  return commands;
}

// All commands with the flag, as the program's own help tells them.
std::vector<std::string> CommandsWithAController() {
  std::vector<std::string> found;
  for (const std::string& name : CommandsIn(Crossmesh("--help").out)) {
    if (name == "demo") continue;  // a script, which starts a controller of its own
    const std::string help = Crossmesh(name + " --help").out;
    const std::vector<std::string> members = CommandsIn(help);
    if (members.empty() && absl::StrContains(help, "--controller")) found.push_back(name);
    for (const std::string& member : members) {
      const std::string command = absl::StrCat(name, " ", member);
      if (absl::StrContains(Crossmesh(command + " --help").out, "--controller")) {
        found.push_back(command);
      }
    }
  }
  return found;
}

// What each must be given; a command that is not here needs nothing.
std::string ArgumentsOf(const std::string& command) {
  const std::map<std::string, std::string> arguments = {
      {"grid tune",
       "--devices a.0-1 --layers 2 --hidden 64 --heads 4 --vocabulary 64 --batch 8 --sequence 8"},
      {"manifest create", "m examples/gpt2.json"},
      {"manifest delete", "m"},
      {"manifest show", "m"},
      {"mesh create", "m 'x=1 on a.0'"},
      {"mesh delete", "m"},
      {"mesh show", "m"},
      {"network set", "\"$NETWORK\""},
      {"operation cancel", "op-1"},
      {"operation show", "op-1"},
      {"operation wait", "op-1"},
      {"operation watch", "op-1"},
      {"pipeline create", "examples/pipeline.json"},
      {"pipeline delete", "p"},
      {"pipeline rehearse", "examples/pipeline.json"},
      {"pipeline run", "examples/pipeline.json --iterations 1"},
      {"pipeline stop", "pr-1"},
      {"plan", kAnyReshard},
      {"redistribute",
       "--manifest client/cli/testdata/small.json --mesh 'x=2 on a.0,b.0' --source '[x, -]' "
       "--destination '[-, x]' --source-storage old --destination-storage new"},
      {"reshard", kAnyReshard},
      {"worker drain", "w"},
      {"worker evict", "w"},
      {"worker forget", "w"},
      {"worker undrain", "w"}};
  const auto found = arguments.find(command);
  return found == arguments.end() ? "" : found->second;
}

class ControllerAddressTest : public testing::Test {
 protected:
  ControllerAddressTest() {
    const std::string network = folder_.PathOf("network.json");
    RunShell(absl::StrCat("echo '{\"hosts\": []}' > ", network));
    variables_ = absl::StrCat("NETWORK='", network, "' && ");
  }

  // With the variable naming `variable`.
  ProgramResult Run(const std::string& variable, const std::string& arguments) const {
    return RunShell(absl::StrCat(variables_, "CROSSMESH_CONTROLLER='", variable,
                                 "' \"$CROSSMESH\" ", arguments, " --json"));
  }

  // This server has no service of ours, so whatever is asked, its answer is known.
  static void ExpectAsked(const ProgramResult& result, const std::string& command) {
    const nlohmann::json document = nlohmann::json::parse(result.out, nullptr, false);
    ASSERT_TRUE(document.is_object()) << command << ": " << result.out << result.error;
    EXPECT_EQ(document["error"]["code"], "UNIMPLEMENTED") << command << ": " << result.out;
  }

  static void ExpectRefused(const ProgramResult& result, const std::string& command) {
    EXPECT_NE(result.exit_status, 0) << command;
    EXPECT_THAT(result.error, HasSubstr(kWrong)) << command;
  }

  const TemporaryFolder folder_;
  std::string variables_;
  const std::string live_ = "unix:" + folder_.PathOf("live.sock");
  const std::unique_ptr<RpcServer> server_ = *RpcServer::Start({.addresses = {live_}});
};

TEST_F(ControllerAddressTest, TheFlagOfEveryCommandIsBeforeTheVariable) {
  const std::vector<std::string> commands = CommandsWithAController();
  EXPECT_GE(commands.size(), 27);
  for (const std::string& command : commands) {
    const std::string given = absl::StrCat(command, " ", ArgumentsOf(command));
    const auto flag = [&](const std::string& address) {
      return absl::StrCat(given, " --controller ", address);
    };
    ExpectAsked(Run(kWrong, flag(live_)), command);
    ExpectRefused(Run(live_, flag(kWrong)), command);
    ExpectAsked(Run(live_, given), command);
  }
}

TEST_F(ControllerAddressTest, TheFlagMayStandBeforeTheCommand) {
  ExpectAsked(Run(kWrong, absl::StrCat("--controller ", live_, " worker list")), "before");
  ExpectRefused(Run(live_, absl::StrCat("--controller ", kWrong, " worker list")), "before");
  ExpectAsked(Run(kWrong, absl::StrCat("worker --controller ", live_, " list")), "in the group");
  ExpectRefused(Run(live_, absl::StrCat("worker --controller ", kWrong, " list")), "in the group");
  EXPECT_THAT(Run("", absl::StrCat("mesh --controller ", live_, " lsit")).error,
              HasSubstr("mesh: unknown command \"lsit\""));
  EXPECT_THAT(Run("", absl::StrCat("layout --controller ", live_, " show")).error,
              HasSubstr("layout: unknown flag \"--controller\""));
  const ProgramResult twice =
      Run("", absl::StrCat("--controller ", live_, " worker list --controller ", kWrong));
  EXPECT_EQ(twice.exit_status, 2);
  EXPECT_THAT(twice.error, HasSubstr("expected one address"));
}

TEST_F(ControllerAddressTest, ACommandThatAsksNoControllerTakesNone) {
  const ProgramResult result =
      Run("", absl::StrCat("--controller ", live_,
                           " layout show --mesh 'x=2 on a.0-1' --layout '[x]' --shape '[4]'"));
  EXPECT_EQ(result.exit_status, 2);
  EXPECT_THAT(result.error, HasSubstr("expected a command that asks a controller, found \"show\""));
}

TEST_F(ControllerAddressTest, AnEmptyFlagIsNoController) {
  const ProgramResult local = Run(kWrong, absl::StrCat("plan ", kAnyReshard, " --controller ''"));
  EXPECT_EQ(local.exit_status, 0) << local.error;
  EXPECT_THAT(Run(kWrong, "worker list --controller ''").error,
              HasSubstr("expected an address by --controller, --context or CROSSMESH_CONTROLLER"));
}

}  // namespace
}  // namespace crossmesh

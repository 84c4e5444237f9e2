// Contexts: their file, and which controller a command asks when several things name one.

#include "client/cli/contexts.h"

#include "client/cli/testing/program_run.h"
#include "common/testing/random_cases.h"
#include "common/testing/status_matchers.h"
#include "common/testing/temporary_folder.h"

#include <fstream>
#include <map>
#include <random>
#include <string>

#include <absl/status/status.h>
#include <absl/strings/str_cat.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace crossmesh {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(ContextsTest, TheFileHasAControllerPerTable) {
  ASSERT_OK_AND_ASSIGN(const Contexts contexts,
                       Contexts::Parse("f",
                                       "current = \"lab\"\n[lab]\ncontroller = \"192.0.2.1:7400\"\n"
                                       "insecure = true\n[here]\ncontroller = 'unix:/run/c'\n"));
  EXPECT_EQ(contexts.current(), "lab");
  EXPECT_EQ(*contexts.Find("lab"), (ControllerContext{"192.0.2.1:7400", true}));
  EXPECT_EQ(*contexts.Find("here"), (ControllerContext{"unix:/run/c", false}));
  EXPECT_THAT(contexts.Find("prod").status().message(), HasSubstr("one of here, lab"));
}

TEST(ContextsTest, WhatIsUnknownIsRefusedWithItsLine) {
  const std::map<std::string, std::string> mistakes = {
      {"[a]\ncontroller = 'x'\ninsecur = true\n", "f:3: expected \"controller\" or \"insecure\""},
      {"[a]\ncontroller = 'x'\ninsecure = \"true\"\n", "f:3: expected true or false"},
      {"[a]\ncontroller = 'x'\ninsecure = 1\n", "f:3: expected true or false"},
      {"[a]\ncontroller = 7\n", "f:2: expected an address in quotes"},
      {"[a]\n", "f:1: expected a context with a \"controller\""},
      {"[A]\ncontroller = 'x'\n", "f:1: expected a name of"},
      {"use = 'a'\n", "f:1: expected current"},
      {"current = a\n", "f:1: expected current"},
      {"\ncurrent = 'b'\n[a]\ncontroller = 'x'\n", "f:2: expected the name of a context below"}};
  for (const auto& [text, error] : mistakes) {
    EXPECT_THAT(Contexts::Parse("f", text).status().message(), HasSubstr(error)) << text;
  }
}

// Whatever is done to contexts, what is written is read as the same, and says what a map would.
TEST(ContextsTest, WhatIsWrittenIsRead) {
  const uint64_t seed = FromEnvironment("CROSSMESH_TEST_SEED", 1);
  SCOPED_TRACE(absl::StrCat("CROSSMESH_TEST_SEED=", seed));
  std::mt19937_64 random(seed);
  const TemporaryFolder folder;
  const std::string path = folder.PathOf("deeper/config.toml");
  std::map<std::string, ControllerContext> reference;
  std::string current;
  for (int step = 0; step < 300; ++step) {
    ASSERT_OK_AND_ASSIGN(Contexts contexts, Contexts::Read(path));
    const std::string name = absl::StrCat("c", random() % 4);
    const bool is_there = reference.contains(name);
    switch (random() % 3) {
      case 0: {
        const ControllerContext context = {absl::StrCat("h:", random() % 9), random() % 2 == 0};
        EXPECT_OK(contexts.Set(name, context));
        reference[name] = context;
        break;
      }
      case 1:
        EXPECT_EQ(contexts.Use(name).ok(), is_there);
        if (is_there) current = name;
        break;
      default:
        EXPECT_EQ(contexts.Delete(name).ok(), is_there);
        reference.erase(name);
        if (current == name) current.clear();
    }
    ASSERT_OK(contexts.Write(path));
    ASSERT_OK_AND_ASSIGN(const Contexts read, Contexts::Read(path));
    ASSERT_EQ(read.current(), current);
    ASSERT_EQ((std::map<std::string, ControllerContext>(read.all().begin(), read.all().end())),
              reference);
  }
}

TEST(ContextsTest, WhatWouldNotBeReadAgainIsNotSet) {
  Contexts contexts;
  for (const char* address : {"", "a b", "a\"b", "a\\b", "a\nb"}) {
    EXPECT_FALSE(contexts.Set("a", {.controller = address}).ok()) << address;
  }
  EXPECT_FALSE(contexts.Set("Upper", {.controller = "a:1"}).ok());
}

class ContextCommandsTest : public testing::Test {
 protected:
  // With the file of `text`.
  ProgramResult Run(const std::string& text, const std::string& command) const {
    std::ofstream(folder_.PathOf("crossmesh.toml")) << text;
    return RunShell(absl::StrCat("export XDG_CONFIG_HOME='", folder_.PathOf("config"),
                                 "' && mkdir -p $XDG_CONFIG_HOME/crossmesh && cp '",
                                 folder_.PathOf("crossmesh.toml"),
                                 "' $XDG_CONFIG_HOME/crossmesh/config.toml && ", command));
  }
  // What the error says of the address that was asked: nothing listens at any, and each is refused
  // before anything is sent.
  std::string Asked(const std::string& variables, const std::string& flags) const {
    return Run("current = 'one'\n[one]\ncontroller = '192.0.2.1:1'\n"
               "[two]\ncontroller = '192.0.2.2:2'\n",
               absl::StrCat(variables, " \"$CROSSMESH\" ", flags, " worker list"))
        .error;
  }

  const TemporaryFolder folder_;
};

TEST_F(ContextCommandsTest, TheNearestToTheCommandSaysWhichController) {
  EXPECT_THAT(Asked("", ""), HasSubstr("192.0.2.1:1"));
  EXPECT_THAT(Asked("CROSSMESH_CONTROLLER=", ""), HasSubstr("192.0.2.1:1"));
  EXPECT_THAT(Asked("CROSSMESH_CONTROLLER=192.0.2.3:3", ""), HasSubstr("192.0.2.3:3"));
  EXPECT_THAT(Asked("CROSSMESH_CONTROLLER=192.0.2.3:3", "--context two"), HasSubstr("192.0.2.2:2"));
  EXPECT_THAT(Asked("CROSSMESH_CONTROLLER=192.0.2.3:3", "--controller 192.0.2.4:4"),
              HasSubstr("192.0.2.4:4"));
  EXPECT_THAT(Asked("", "--controller ''"), HasSubstr("found none"));
  EXPECT_THAT(Asked("", "--controller a:1 --context two"), HasSubstr("found both"));
  EXPECT_THAT(Asked("", "--context three"), HasSubstr("one of one, two"));
}

TEST_F(ContextCommandsTest, AContextMayAllowWhatIsInsecure) {
  const ProgramResult result =
      Run("current = 'a'\n[a]\ncontroller = '192.0.2.1:1'\ninsecure = true\n",
          "\"$CROSSMESH\" worker list --timeout 100ms");
  EXPECT_NE(result.exit_status, 0);
  EXPECT_THAT(result.error, testing::Not(HasSubstr("--insecure")));
}

TEST_F(ContextCommandsTest, ABrokenFileMattersOnlyWhereItIsRead) {
  const std::string broken = "[a]\ncontrolle = 'x'\n";
  const ProgramResult asked = Run(broken, "\"$CROSSMESH\" worker list");
  EXPECT_EQ(asked.exit_status, 2);
  EXPECT_THAT(asked.error, HasSubstr("config.toml:2: expected"));
  EXPECT_EQ(Run(broken,
                "\"$CROSSMESH\" layout show --mesh 'x=2 on a.0-1' --layout '[x]' "
                "--shape '[4]'")
                .exit_status,
            0);
  EXPECT_THAT(Run(broken, "CROSSMESH_CONTROLLER=192.0.2.3:3 \"$CROSSMESH\" worker list").error,
              HasSubstr("192.0.2.3:3"));
}

TEST_F(ContextCommandsTest, ContextsAreSetUsedShownAndDeleted) {
  const ProgramResult result =
      Run("",
          "\"$CROSSMESH\" context set lab 192.0.2.1:7400 --insecure && "
          "\"$CROSSMESH\" context set here unix:/run/c && \"$CROSSMESH\" context use lab && "
          "\"$CROSSMESH\" context show -o name && \"$CROSSMESH\" context delete here && "
          "\"$CROSSMESH\" context list --json && cat $XDG_CONFIG_HOME/crossmesh/config.toml");
  EXPECT_EQ(result.exit_status, 0) << result.error;
  EXPECT_THAT(result.out, HasSubstr("\nlab\n"));
  EXPECT_THAT(result.out, HasSubstr("\"controller\": \"192.0.2.1:7400\""));
  EXPECT_THAT(result.out, HasSubstr("current = \"lab\"\n\n[lab]\n"));
  EXPECT_THAT(result.out, testing::Not(HasSubstr("unix:/run/c\"")));
}

TEST_F(ContextCommandsTest, WithoutAFileThereIsNone) {
  const ProgramResult result = Crossmesh("context list");
  EXPECT_EQ(result.exit_status, 0);
  EXPECT_THAT(result.error, IsEmpty());
  EXPECT_EQ(Crossmesh("context show").exit_status, 1);
  EXPECT_EQ(Crossmesh("context use lab").exit_status, 1);
}

}  // namespace
}  // namespace crossmesh

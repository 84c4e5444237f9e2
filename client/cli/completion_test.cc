// Scripts for shells, as a shell takes them, and the manual page, as man does.

#include "client/cli/testing/program_run.h"

#include <string>
#include <vector>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_split.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::IsSupersetOf;
using ::testing::Not;

// What a real bash offers for the last of these words.
std::vector<std::string> Offered(const std::string& words) {
  const ProgramResult result = RunShell(absl::StrCat(
      "bash --norc --noprofile -c 'source <(\"$0\" completion bash); COMP_WORDS=(crossmesh ", words,
      "); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _crossmesh; printf \"%s\\n\" "
      "\"${COMPREPLY[@]}\"' \"$CROSSMESH\""));
  EXPECT_EQ(result.exit_status, 0) << result.error;
  EXPECT_THAT(result.error, IsEmpty());
  return absl::StrSplit(result.out, '\n', absl::SkipEmpty());
}

TEST(CompletionTest, ABashOffersTheCommandsThatThereAre) {
  EXPECT_THAT(Offered("me"), ElementsAre("mesh"));
  EXPECT_THAT(Offered("mesh \"\""), ElementsAre("create", "list", "show", "delete"));
  EXPECT_THAT(Offered("mesh l"), ElementsAre("list"));
  EXPECT_THAT(Offered("\"\""), IsSupersetOf({"worker", "operation", "status", "top", "context"}));
}

TEST(CompletionTest, ABashOffersTheFlagsOfTheCommandThatIsNamed) {
  EXPECT_THAT(Offered("mesh list --out"), ElementsAre("--output"));
  EXPECT_THAT(Offered("worker list --w"), ElementsAre("--watch"));
  EXPECT_THAT(Offered("mesh list --w"), IsEmpty());
  EXPECT_THAT(Offered("--controller x mesh --context y list --js"), ElementsAre("--json"));
}

TEST(CompletionTest, AValueIsNoCommandOfAnother) {
  // "list" is a value here, so what follows is still of mesh.
  EXPECT_THAT(Offered("mesh show list \"\""), Not(Contains("create")));
  EXPECT_THAT(Offered("mesh show pipeline ru"), IsEmpty());
}

// Every command of every help is in every script, and no other one is.
TEST(CompletionTest, AllShellsHaveTheSameCommands) {
  for (const char* shell : {"bash", "fish", "zsh"}) {
    const ProgramResult script = Crossmesh(absl::StrCat("completion ", shell));
    EXPECT_EQ(script.exit_status, 0);
    for (const char* path : {"' mesh list'", "' pipeline run'", "' worker drain'", "' status'"}) {
      EXPECT_THAT(script.out, HasSubstr(path)) << shell;
    }
    EXPECT_THAT(script.out, Not(HasSubstr("mesh register"))) << "another name, for scripts";
  }
  EXPECT_EQ(Crossmesh("completion csh").exit_status, 2);
}

TEST(CompletionTest, ShellsThatAreThereReadTheirScripts) {
  for (const char* shell : {"bash", "fish", "zsh"}) {
    const ProgramResult result = RunShell(
        absl::StrCat("command -v ", shell, " > /dev/null || exit 0; \"$CROSSMESH\" completion ",
                     shell, " | ", shell, " -n"));
    EXPECT_EQ(result.exit_status, 0) << shell << ": " << result.error;
  }
}

TEST(ManualTest, ThePageHasEveryCommandOfTheHelp) {
  const ProgramResult page = Crossmesh("manual");
  EXPECT_EQ(page.exit_status, 0);
  for (const char* command : {"crossmesh mesh list", "crossmesh worker drain",
                              "crossmesh context use", "crossmesh pipeline run"}) {
    EXPECT_THAT(page.out, HasSubstr(absl::StrCat(".SS ", command, "\n")));
  }
  EXPECT_THAT(page.out, HasSubstr("\\-\\-output"));
}

TEST(ManualTest, RoffHasNothingToSayAgainstIt) {
  const ProgramResult result = RunShell(
      "command -v groff > /dev/null || exit 0; "
      "\"$CROSSMESH\" manual | groff -man -Tutf8 -wall -b > /dev/null");
  EXPECT_EQ(result.exit_status, 0);
  EXPECT_THAT(result.error, IsEmpty());
}

}  // namespace
}  // namespace crossmesh

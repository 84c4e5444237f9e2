#include "common/daemon/manual_page.h"

#include <set>
#include <string>

#include <CLI/CLI.hpp>
#include <absl/strings/str_split.h>
#include <absl/strings/string_view.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(ManualPageTest, APageHasAllThatTheHelpHas) {
  CLI::App app("Moves things", "mover");
  std::string where = "here";
  app.add_option("-w,--where", where, "Where to")->capture_default_str();
  app.add_option("--hidden", where, "Not for people")->group("");
  CLI::App& group = *app.add_subcommand("box", "Handles boxes");
  CLI::App& list = *group.add_subcommand("list", "Lists boxes");
  list.footer("Examples:\n  mover box list\n");
  const std::string page = ManualPage(app, 1, "mover 1.2.3");
  EXPECT_THAT(page, HasSubstr(".TH MOVER 1 \"\" \"mover 1.2.3\"\n"));
  EXPECT_THAT(page, HasSubstr("mover \\- Moves things\n"));
  EXPECT_THAT(page, HasSubstr("\\fB\\-w, \\-\\-where\\fR \\fITEXT\\fR (here)\nWhere to\n"));
  EXPECT_THAT(page, Not(HasSubstr("hidden")));
  EXPECT_THAT(page, HasSubstr(".SS mover box list\nLists boxes\n"));
  EXPECT_THAT(page, HasSubstr("  mover box list\n.fi\n"));
}

TEST(ManualPageTest, NoTextIsTakenForARequestOfRoff) {
  CLI::App app("a\\b", "mover");
  app.footer(".so /etc/passwd\n'br\nc -- d\n");
  const std::string page = ManualPage(app, 8, "v");
  EXPECT_THAT(page, HasSubstr("a\\eb"));
  for (const absl::string_view line : absl::StrSplit(page, '\n')) {
    if (line.empty() || line.front() != '.') continue;
    EXPECT_THAT((std::set<std::string>{".TH", ".SH", ".B", ".nf", ".fi", ".TP"}),
                testing::Contains(std::string(line.substr(0, line.find(' ')))));
  }
  EXPECT_THAT(page, HasSubstr("\n\\&'br\nc \\-\\- d\n"));
}

}  // namespace
}  // namespace crossmesh

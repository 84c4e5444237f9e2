#include "common/daemon/toml_entries.h"

#include "common/testing/random_cases.h"
#include "common/testing/status_matchers.h"

#include <random>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/strings/str_cat.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::HasSubstr;

TEST(TomlEntriesTest, EntriesHaveTheirTableAndTheirLine) {
  ASSERT_OK_AND_ASSIGN(const std::vector<TomlEntry> entries,
                       ParseToml("f",
                                 "# first\ncurrent = 'lab'\n\n[lab]  # a table\n"
                                 "  controller = \"192.0.2.1:7400\" # where\ninsecure=true\n"
                                 "[\"b-2\"]\n"));
  ASSERT_EQ(entries.size(), 5);
  EXPECT_EQ(entries[0].table, "");
  EXPECT_EQ(entries[0].key, "current");
  EXPECT_EQ(entries[0].value, "lab");
  EXPECT_EQ(entries[0].line, 2);
  EXPECT_EQ(entries[1].table, "lab");
  EXPECT_EQ(entries[1].key, "");
  EXPECT_EQ(entries[2].value, "192.0.2.1:7400");
  EXPECT_TRUE(entries[2].is_text);
  EXPECT_EQ(entries[2].line, 5);
  EXPECT_EQ(entries[3].value, "true");
  EXPECT_FALSE(entries[3].is_text);
  EXPECT_EQ(entries[4].table, "b-2");
}

TEST(TomlEntriesTest, WhatIsNoLineOfSuchAFileIsRefusedWithItsPlace) {
  for (const char* line :
       {"[lab", "lab]", "foo", "= 1", "a =", "a = \"open", "a = \"b\" c", "a = b c", "a = [1, 2]",
        "[x] y", "[]", "a b = 1", "'a' = 1", "a = {b = 1}", "[[x]]"}) {
    EXPECT_THAT(ParseToml("f.toml", absl::StrCat("x = 1\n", line, "\n")).status().message(),
                HasSubstr("f.toml:2: expected"))
        << line;
  }
}

TEST(TomlEntriesTest, NothingStandsTwice) {
  EXPECT_THAT(ParseToml("f", "[a]\nx = 1\n[b]\nx = 1\n[a]\n").status().message(),
              HasSubstr("f:5: expected each once"));
  EXPECT_THAT(ParseToml("f", "[a]\nx = 1\nx = 2\n").status().message(), HasSubstr("f:3:"));
}

TEST(TomlEntriesTest, AnyTextIsReadOrRefused) {
  const uint64_t seed = FromEnvironment("CROSSMESH_TEST_SEED", 1);
  SCOPED_TRACE(absl::StrCat("CROSSMESH_TEST_SEED=", seed));
  std::mt19937_64 random(seed);
  constexpr absl::string_view kLetters = "[]=\"'#\\\n a.0,{}\t\r\x80";
  for (int64_t i = 0; i < RandomCases(20'000); ++i) {
    std::string text;
    for (uint64_t size = random() % 24; size > 0; --size) {
      text += kLetters[random() % kLetters.size()];
    }
    const auto entries = ParseToml("f", text);
    if (!entries.ok()) EXPECT_THAT(entries.status().message(), HasSubstr("f:")) << text;
  }
}

}  // namespace
}  // namespace crossmesh

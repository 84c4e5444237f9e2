#include "common/mesh/name_pattern.h"

#include "common/mesh/testing/random_values.h"
#include "common/testing/is_refused.h"

#include <vector>

#include <absl/status/status.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using Values = std::vector<int64_t>;

std::optional<Values> Match(absl::string_view pattern, absl::string_view name) {
  return NamePattern::Parse(pattern)->Match(name);
}

TEST(NamePatternTest, MatchesWholeNames) {
  EXPECT_TRUE(Match("wte.weight", "wte.weight"));
  EXPECT_FALSE(Match("wte.weight", "wte.weights"));
  EXPECT_FALSE(Match("wte.weight", "wte.weigh"));
  EXPECT_TRUE(Match("*", ""));
  EXPECT_TRUE(Match("h.*.weight", "h.1.attn.weight"));
  EXPECT_TRUE(Match("*a*ab", "aaaab"));
  EXPECT_FALSE(Match("*a*ab", "aaaa"));
  EXPECT_TRUE(Match("h.?.b", "h.1.b"));
  EXPECT_FALSE(Match("h.?.b", "h.11.b"));
  EXPECT_TRUE(Match("a**b", "axb"));
}

TEST(NamePatternTest, CapturesWholeRunsOfDigits) {
  EXPECT_EQ(Match("h.{l}.*", "h.11.ln_1.weight"), (Values{11}));
  EXPECT_EQ(Match("l.{l}.e.{e}.w", "l.3.e.017.w"), (Values{3, 17}));
  EXPECT_EQ(Match("*.{l}.*", "a.1.b.2.c"), (Values{1})) << "a star takes as little as it can";
  EXPECT_EQ(Match("*{e}", "a.12"), (Values{12}));
  EXPECT_EQ(Match("?{e}", "012"), std::nullopt) << "12 is a part of a longer run";
  EXPECT_EQ(Match("h.{l}", "h."), std::nullopt);
  EXPECT_EQ(Match("h.{l}", "h.999999999999999999"), (Values{999999999999999999}));
  EXPECT_EQ(Match("h.{l}", "h.1000000000000000000"), std::nullopt);
}

TEST(NamePatternTest, ManyStarsStayCheap) {
  std::string pattern;
  for (int i = 0; i < 100; ++i) pattern += "*a";
  EXPECT_FALSE(Match(pattern + "b", std::string(256, 'a')));
}

// Tries every length for every star.
bool MatchesSlowly(absl::string_view pattern, absl::string_view name, size_t at) {
  if (pattern.empty()) return at == name.size();
  if (pattern[0] == '*') {
    for (size_t end = at; end <= name.size(); ++end) {
      if (MatchesSlowly(pattern.substr(1), name, end)) return true;
    }
    return false;
  }
  if (at == name.size()) return false;
  if (pattern[0] != '{') {
    return (pattern[0] == '?' || pattern[0] == name[at]) &&
           MatchesSlowly(pattern.substr(1), name, at + 1);
  }
  const auto is_digit = [name](size_t i) { return i < name.size() && name[i] != 'a'; };
  if (!is_digit(at) || (at > 0 && is_digit(at - 1))) return false;
  while (is_digit(at)) ++at;
  return MatchesSlowly(pattern.substr(pattern.find('}') + 1), name, at);
}

TEST(NamePatternTest, AgreesWithTryingEverything) {
  int matches = 0;
  for (uint64_t seed = 1; seed <= 20000; ++seed) {
    RandomValues random(seed);
    std::string pattern = "*";
    for (int64_t i = 0, count = random.Between(1, 6); i < count; ++i) {
      const std::vector<std::string> elements = {"*", "?", "a", "1", absl::StrCat("{c", i, "}")};
      pattern += elements[random.Between(0, 4)];
    }
    const absl::StatusOr<NamePattern> parsed = NamePattern::Parse(pattern);
    if (!parsed.ok()) continue;
    std::string name;
    for (int64_t i = random.Between(0, 9); i > 0; --i) name += "a12"[random.Between(0, 2)];
    const bool expected = MatchesSlowly(pattern, name, 0);
    matches += expected ? 1 : 0;
    ASSERT_EQ(parsed->Match(name).has_value(), expected)
        << "seed " << seed << ": " << pattern << " on " << name;
  }
  EXPECT_GT(matches, 1000);
}

TEST(NamePatternTest, RefusesPatternsThatMakeNoSense) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", "found nothing"},
      {"h.{l", "expected \"}\""},
      {"h.{}", "found \"{}\""},
      {"h.{L}", "found \"{L}\""},
      {"{l}.{l}", "named twice"},
      {"{l}{e}", "before {e} would belong to it"},
      {"h1{l}", "before {l} would belong to it"},
      {"{l}1", "after {l} would belong to it"}};
  for (const auto& [text, message] : cases) {
    EXPECT_THAT(NamePattern::Parse(text), IsRefused(message)) << text;
  }
}

}  // namespace
}  // namespace crossmesh

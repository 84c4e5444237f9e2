#include "common/mesh/layout_rules.h"

#include "common/testing/is_refused.h"
#include "common/testing/status_matchers.h"

#include <vector>

#include <absl/status/status.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::HasSubstr;

constexpr absl::string_view kRules = R"(
# experts, four to a coordinate
model.layers.{l}.mlp.experts.{e}.up_proj.weight  [tensor, -]  on expert={e}/4, stage={l}/12
model.layers.{l}.*   [..., data] nested_chunk on stage={l}   # the rest of a layer
*.scale              []
embed*               [data*tensor, ...] on on=1
tiles                {[0:1]; [1:2]} as F8_E4M3
*.weight             [-, ...] chunk as BF16
as.*                 [as] on as=1 as F32
)";

TEST(LayoutRulesTest, TheFirstRuleThatMatchesHolds) {
  ASSERT_OK_AND_ASSIGN(const LayoutRules rules, LayoutRules::Parse(kRules));
  ASSERT_OK_AND_ASSIGN(const RuleMatch expert,
                       rules.Match("model.layers.25.mlp.experts.11.up_proj.weight", 2));
  EXPECT_EQ(ToString(expert.layout), "[tensor, -]");
  EXPECT_EQ(CoordinatesToString(expert.coordinates), "expert=2,stage=2");
  EXPECT_EQ(expert.line, 3);
  ASSERT_OK_AND_ASSIGN(const RuleMatch norm, rules.Match("model.layers.3.norm.weight", 3));
  EXPECT_EQ(ToString(norm.layout), "[-, -, data] nested_chunk");
  EXPECT_EQ(CoordinatesToString(norm.coordinates), "stage=3");
  ASSERT_OK_AND_ASSIGN(const RuleMatch embedding, rules.Match("embedding", 1));
  EXPECT_EQ(ToString(embedding.layout), "[data*tensor]");
  EXPECT_EQ(CoordinatesToString(embedding.coordinates), "on=1");
  EXPECT_EQ(ToString(rules.Match("tiles", 1)->layout), "{[0:1]; [1:2]}");
  EXPECT_EQ(rules.Match("tiles", 1)->type, DataType::kF8E4M3);
  EXPECT_EQ(ToString(rules.Match("x.scale", 0)->layout), "[]");
  EXPECT_EQ(ToString(rules.Match("x.weight", 2)->layout), "[-, -] chunk");
  EXPECT_EQ(rules.Match("x.weight", 2)->type, DataType::kBF16);
  EXPECT_EQ(rules.Match("x.scale", 0)->type, std::nullopt);
  ASSERT_OK_AND_ASSIGN(const RuleMatch as, rules.Match("as.b", 1));
  EXPECT_EQ(CoordinatesToString(as.coordinates), "as=1");
  EXPECT_EQ(as.type, DataType::kF32);
}

TEST(LayoutRulesTest, NamesTheTensorThatNoRuleMatches) {
  ASSERT_OK_AND_ASSIGN(const LayoutRules rules, LayoutRules::Parse(kRules));
  EXPECT_THAT(
      rules.Match("x.bias", 1),
      StatusIs(absl::StatusCode::kNotFound, HasSubstr("tensor \"x.bias\": expected one of the ")));
  EXPECT_THAT(LayoutRules::Parse("")->Match("x", 1), StatusIs(absl::StatusCode::kNotFound));
}

TEST(LayoutRulesTest, RefusesATensorOfAnotherRank) {
  ASSERT_OK_AND_ASSIGN(const LayoutRules rules, LayoutRules::Parse("a [x, -]\nb [x, ...]\n"));
  EXPECT_THAT(
      rules.Match("a", 3),
      StatusIs(absl::StatusCode::kInvalidArgument,
               "tensor \"a\": expected a rank of 2, as layout rules, line 1, say, found 3"));
  EXPECT_THAT(rules.Match("b", 0), IsRefused("a rank of at least 1, as layout rules, line 2, say"));
}

TEST(LayoutRulesTest, ErrorsHaveTheLine) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"a", "line 1: layout rule \"\", column 1: expected a layout"},
      {"a [x]\nb [y", "line 2: layout rule \" [y\", column 4: expected \"]\""},
      {"a [x] at x=1", "expected an uneven rule, \"on\", \"as\" or the end, found \"at\""},
      {"a [x] on", "expected an axis name"},
      {"a [x] on y={e}", "expected a capture of the rule's pattern, found \"e\""},
      {"a.{e} [x] on y={e}/0", "expected a divisor of at least 1, found \"0\""},
      {"a.{e} [x] on y={e}*2", "expected \",\", \"as\" or the end, found \"*\""},
      {"a [x] as", "line 1: data type \"\": expected one of BOOL"},
      {"a [x] as bf16", "data type \"bf16\": expected one of BOOL"},
      {"a [x] as F32 on x=1", "expected the end, found \"on\""},
      {"a [..., ...]", "\"...\" at most once"},
      {"a.{e [x]", "pattern \"a.{e\""}};
  for (const auto& [text, message] : cases) {
    EXPECT_THAT(LayoutRules::Parse(text), IsRefused(message)) << text;
  }
}

TEST(LayoutRulesTest, AHashInsideAPatternIsNoComment) {
  ASSERT_OK_AND_ASSIGN(const LayoutRules rules, LayoutRules::Parse("a#b [] # comment\r\n"));
  EXPECT_OK(rules.Match("a#b", 0));
}

}  // namespace
}  // namespace crossmesh

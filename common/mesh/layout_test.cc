#include "common/mesh/layout.h"

#include "common/testing/is_refused.h"
#include "common/testing/status_matchers.h"

#include <limits>
#include <vector>

#include <absl/status/status.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

std::vector<int64_t> Ends(UnevenRule rule, int64_t length, std::vector<int64_t> sizes) {
  std::vector<int64_t> ends;
  for (const Interval& part : PartsOfDimension(rule, length, sizes)) ends.push_back(part.end);
  return ends;
}

absl::Status ValidateTexts(absl::string_view layout, absl::string_view shape,
                           absl::string_view mesh = "data=4,model=2 on a.0-7") {
  return ParseLayout(layout)->Validate(*ParseMesh(mesh), *ParseShape(shape));
}

TEST(PartsOfDimensionTest, FollowTheRules) {
  using Numbers = std::vector<int64_t>;
  EXPECT_EQ(Ends(UnevenRule::kExact, 6, {3}), (Numbers{2, 4, 6}));
  EXPECT_EQ(Ends(UnevenRule::kExact, 6, {}), (Numbers{6}));
  EXPECT_EQ(Ends(UnevenRule::kChunk, 7, {5}), (Numbers{2, 4, 6, 7, 7}));
  EXPECT_EQ(Ends(UnevenRule::kBalanced, 7, {5}), (Numbers{2, 4, 5, 6, 7}));
  EXPECT_EQ(Ends(UnevenRule::kChunk, 0, {2}), (Numbers{0, 0}));
}

TEST(PartsOfDimensionTest, ChunkAndNestedChunkDiffer) {
  EXPECT_EQ(Ends(UnevenRule::kChunk, 10, {2, 3}), (std::vector<int64_t>{2, 4, 6, 8, 10, 10}));
  EXPECT_EQ(Ends(UnevenRule::kNestedChunk, 10, {2, 3}), (std::vector<int64_t>{2, 4, 5, 7, 9, 10}));
}

TEST(PartsOfDimensionTest, NothingOverflowsNearTheLimit) {
  const int64_t max = std::numeric_limits<int64_t>::max();
  for (const UnevenRule rule :
       {UnevenRule::kChunk, UnevenRule::kNestedChunk, UnevenRule::kBalanced}) {
    const std::vector<Interval> parts = PartsOfDimension(rule, max, std::vector<int64_t>{16, 4});
    EXPECT_EQ(parts.size(), 64U);
    EXPECT_EQ(parts.back().end, max);
    int64_t sum = 0;
    for (const Interval& part : parts) sum += part.length();
    EXPECT_EQ(sum, max) << UnevenRuleName(rule);
  }
}

TEST(LayoutTest, PrintsAndParses) {
  for (const char* text :
       {"[]", "[-]", "[data*model, -]", "[data*model, -] nested_chunk", "[-, data] chunk",
        "[data] balanced", "{[0:3, 0:4] [6:9, 0:4]; [3:6, 0:4]}", "{; [0:1]; }", "{}",
        "{[]; []}"}) {
    const absl::StatusOr<Layout> layout = ParseLayout(text);
    ASSERT_OK(layout) << text;
    EXPECT_EQ(ToString(*layout), text);
  }
  EXPECT_THAT(ParseLayout("[ data * model ,-] exact"),
              IsOkAndHolds(*ParseLayout("[data*model, -]")));
}

TEST(LayoutTest, RefusesMalformedText) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", "expected a layout"},
      {"[data", "column 6: expected \"]\", found the end"},
      {"[data,]", "expected an axis name"},
      {"[data*]", "expected an axis name"},
      {"[data] ceil", "column 8: expected the end or one of exact, chunk, nested_chunk, balanced"},
      {"[data] chunk chunk", "expected the end"},
      {"[data, ...]", "\"...\" needs a layout rule"},
      {"{[0:1]", "expected \"[\", found the end"},
      {"{[0:1]} chunk", "expected the end, found \"chunk\""}};
  for (const auto& [text, message] : cases) {
    EXPECT_THAT(ParseLayout(text), IsRefused(message)) << text;
  }
  EXPECT_THAT(ParseUnevenRule("ceil"), IsRefused("nested_chunk"));
  EXPECT_THAT(ParseUnevenRule("nested_chunk"), IsOkAndHolds(UnevenRule::kNestedChunk));
}

TEST(LayoutTest, AnUnevenDimensionNeedsARule) {
  EXPECT_THAT(ValidateTexts("[data, -]", "[7, 5]", "data=4 on a.0-3"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "layout [data, -]: dimension 0 of [7, 5] has 7 elements, which 4 parts over "
                       "axes data=4 do not divide; name an uneven rule (chunk, nested_chunk, "
                       "balanced)"));
  EXPECT_OK(ValidateTexts("[data, -] chunk", "[7, 5]", "data=4 on a.0-3"));
  EXPECT_OK(ValidateTexts("[data, -]", "[0, 5]", "data=4 on a.0-3"));
}

TEST(LayoutTest, ValidateNamesWhatDoesNotFit) {
  const std::vector<std::vector<std::string>> cases = {
      {"[data]", "[8, 8]", "expected 2 dimensions, those of shape [8, 8], found 1"},
      {"[expert, -]", "[8, 8]", "names axis expert, but the axes of the mesh are data=4,model=2"},
      {"[data, model*data]", "[8, 8]", "axis data is used twice, again on dimension 1"},
      {"[data*data, -]", "[16, 8]", "axis data is used twice"},
      {"{[0:8, 0:8]}", "[8, 8]", "expected tiles of 8 slots"},
      {"{;;;;;;; [0:8]}", "[8, 8]", "slot 7 holds [0:8] of rank 1"},
      {"{;;;;;;; [0:9, 0:8]}", "[8, 8]", "not inside [0:8, 0:8]"},
      {"{;;;;;;; [1:1, 0:8]}", "[8, 8]", "which is empty; leave it out"},
      {"{;;;;;;; [0:8, 0:2] [2:3, 4:6] [2:3, 1:5]}", "[8, 8]", "which overlap"},
      {"{;;;;;;; [] []}", "[]", "which overlap"}};
  for (const std::vector<std::string>& c : cases) {
    EXPECT_THAT(ValidateTexts(c[0], c[1]), IsRefused(c[2])) << c[0];
  }
}

TEST(LayoutTest, ExplicitTilesOfDifferentSlotsMayOverlap) {
  const std::string text = "{[0:8]; [0:8]; [4:8] [0:4]; ; ; ; ; }";
  EXPECT_OK(ValidateTexts(text, "[8]"));
  EXPECT_EQ(ParseLayout(text)->Tiles(*ParseMesh("data=8 on a.0-7"), *ParseShape("[8]"))[2],
            (Tile{Box({{4, 8}}), Box({{0, 4}})}));
}

TEST(LayoutTest, TilesFollowTheSlots) {
  ASSERT_OK_AND_ASSIGN(const Mesh mesh, ParseMesh("data=2,model=2 on a.0-3"));
  ASSERT_OK_AND_ASSIGN(const Layout layout, ParseLayout("[model*data, -] chunk"));
  ASSERT_OK_AND_ASSIGN(const Shape shape, ParseShape("[5, 3]"));
  EXPECT_EQ(layout.Tiles(mesh, shape),
            (std::vector<Tile>{
                {Box({{0, 2}, {0, 3}})}, {Box({{4, 5}, {0, 3}})}, {Box({{2, 4}, {0, 3}})}, {}}));
  EXPECT_EQ(Layout().Tiles(mesh, Shape()), std::vector<Tile>(4, Tile{Box()}));
}

TEST(LayoutTest, TilesOfAnEmptyTensorAreEmpty) {
  ASSERT_OK_AND_ASSIGN(const Mesh mesh, ParseMesh("data=2 on a.0-1"));
  EXPECT_EQ(ParseLayout("[data, -]")->Tiles(mesh, *ParseShape("[4, 0]")), std::vector<Tile>(2));
  EXPECT_EQ(Volume({Box({{0, 2}}), Box({{5, 6}})}), 3);
}

}  // namespace
}  // namespace crossmesh

#include "planner/redistribute/redistribution_request.h"

#include "common/testing/is_refused.h"
#include "common/testing/status_matchers.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace crossmesh {
namespace {

// x=2, y=6 over 12x12: rows over x, then over y.
RedistributionRequest Valid() {
  RedistributionRequest request{.axes = {{"x", 2}, {"y", 6}}};
  request.shape = *Shape::Create(std::vector<int64_t>{12, 12});
  request.source.dimensions = {{{.axis = 0, .size = 2}}, {}};
  request.destination.dimensions = {{{.axis = 1, .size = 6}}, {}};
  return request;
}

TEST(RedistributionRequestTest, AValidOneIsAccepted) { EXPECT_OK(Validate(Valid())); }

TEST(RedistributionRequestTest, AnAxisIsInOnePlace) {
  RedistributionRequest request = Valid();
  request.source.partial.push_back({{.axis = 0, .size = 2}});
  EXPECT_THAT(Validate(request), IsRefused("source: expected each axis in one place, found x in "
                                           "dimension 0 and x in partial"));
  request = Valid();
  request.destination.dimensions[1] = {{.axis = 1, .before = 2, .size = 3}};
  EXPECT_THAT(Validate(request),
              IsRefused("destination: expected each axis in one place, found y in dimension 0 and "
                        "y:(2)3 in dimension 1"));
}

TEST(RedistributionRequestTest, ADestinationIsPartialOnlyWhereTheSourceIs) {
  RedistributionRequest request = Valid();
  request.destination.partial.push_back({{.axis = 0, .size = 2}});
  EXPECT_THAT(Validate(request),
              IsRefused("destination: expected partial axes among the source's, {}, found x"));
  request.source = {.dimensions = {{}, {}}, .partial = {{{.axis = 0, .size = 2}}}};
  EXPECT_OK(Validate(request));
}

TEST(RedistributionRequestTest, ThereIsOneKindOfReduction) {
  RedistributionRequest request = Valid();
  request.source = {.dimensions = {{}, {}},
                    .partial = {{{.axis = 0, .size = 2}, PartialReduction::kSum},
                                {{.axis = 1, .size = 6}, PartialReduction::kMax}}};
  EXPECT_THAT(Validate(request), IsRefused("partial axis y: expected one kind of reduction for the "
                                           "tensor, sum, found max"));
}

TEST(RedistributionRequestTest, PartsOfAnAxisDivideEachOther) {
  RedistributionRequest request = Valid();
  request.source.dimensions[1] = {{.axis = 1, .size = 2}};
  request.destination.dimensions[0] = {{.axis = 1, .size = 3}};
  EXPECT_THAT(Validate(request), IsRefused("axis y: expected parts that divide each other, found "
                                           "y:(1)2 and y:(1)3"));
}

TEST(RedistributionRequestTest, LengthsDivideUnderTheExactRule) {
  RedistributionRequest request = Valid();
  request.shape = *Shape::Create(std::vector<int64_t>{10, 12});
  EXPECT_THAT(Validate(request), IsRefused("destination: expected dimension 0 of length 10 to "
                                           "divide under rule exact, found 6 parts"));
  request.destination.rule = UnevenRule::kChunk;
  EXPECT_OK(Validate(request));
}

TEST(RedistributionRequestTest, WhatIsOutOfRangeIsRefused) {
  RedistributionRequest request = Valid();
  request.item_bytes = 0;
  EXPECT_THAT(Validate(request), IsRefused("item_bytes: expected 1 to 2^24, found 0"));
  request = Valid();
  request.axes[0].size = 1 << 20;
  EXPECT_THAT(Validate(request), IsRefused("axis x: expected at most 65536 devices"));
  request = Valid();
  request.source.dimensions.pop_back();
  EXPECT_THAT(Validate(request), IsRefused("source: expected 2 dimensions"));
  request = Valid();
  request.source.dimensions[0][0].axis = 2;
  EXPECT_THAT(Validate(request), IsRefused("source: expected an axis below 2, found axis 2"));
  request = Valid();
  request.source.dimensions[0][0].size = 4;
  EXPECT_THAT(Validate(request), IsRefused("source: expected a part of axis x of size 2"));
}

TEST(RedistributionRequestTest, AnEndIsMadeOfALayout) {
  const std::vector<Axis> axes = {{"x", 2}, {"y", 6}};
  const std::vector<std::string> partial = {"x"};
  ASSERT_OK_AND_ASSIGN(const Layout layout, ParseLayout("[-, y]"));
  ASSERT_OK_AND_ASSIGN(const RedistributionEnd end,
                       EndOf(layout, axes, partial, PartialReduction::kMax));
  EXPECT_EQ(end,
            (RedistributionEnd{.dimensions = {{}, {{.axis = 1, .size = 6}}},
                               .partial = {{{.axis = 0, .size = 2}, PartialReduction::kMax}}}));
  ASSERT_OK_AND_ASSIGN(const Layout other, ParseLayout("[z]"));
  EXPECT_THAT(EndOf(other, axes), IsRefused("expected one of the axes x=2,y=6, found 'z'"));
  ASSERT_OK_AND_ASSIGN(const Layout tiles, ParseLayout("{[0:3]; [3:6]}"));
  EXPECT_THAT(EndOf(tiles, axes), IsRefused("expected axes, found explicit tiles"));
}

TEST(SubAxisTest, TextsAreReadAndWritten) {
  const std::vector<Axis> axes = {{"x", 2}, {"y", 6}};
  for (const std::string text : {"x", "y", "y:(2)3", "y:(1)2"}) {
    ASSERT_OK_AND_ASSIGN(const SubAxis part, ParseSubAxis(text, axes));
    EXPECT_EQ(ToString(part, axes), text);
  }
  for (const std::string text : {"y:", "y:(2)", "y:(4)2", "y:(2)6", "y:(0)2", "y:2", "y:(7)1"}) {
    EXPECT_THAT(ParseSubAxis(text, axes), IsRefused("whose product divides 6")) << text;
  }
}

}  // namespace
}  // namespace crossmesh

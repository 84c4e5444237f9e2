#include "worker/gpu/compiler/staging_places.h"

#include <optional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

// Where, or -1 for nowhere.
int64_t Take(StagingPlaces& places, int64_t bytes, const StepUse& last) {
  const std::optional<StagingPlaces::Place> place = places.Take(bytes, last);
  return place.has_value() ? place->offset : -1;
}

TEST(StagingPlacesTest, AFreePlaceRestsBeforeItIsTakenAgain) {
  StagingPlaces places(1000, /*steps_ahead=*/2);
  places.BeginStep(0);
  EXPECT_EQ(Take(places, 100, {.wire = 0}), 0);
  places.BeginStep(1);
  EXPECT_EQ(Take(places, 100, {.wire = 1}), 100);
  places.BeginStep(2);
  EXPECT_EQ(Take(places, 100, {.wire = 2}), 200);
  places.BeginStep(3);
  EXPECT_EQ(Take(places, 100, {.wire = 3}), 0);
}

TEST(StagingPlacesTest, WhereNothingElseIsLeftThePlaceThatRestedLongestGoesFirst) {
  StagingPlaces places(300, /*steps_ahead=*/9);
  places.BeginStep(0);
  EXPECT_EQ(Take(places, 100, {.wire = 1}), 0);
  EXPECT_EQ(Take(places, 100, {.wire = 0}), 100);
  EXPECT_EQ(Take(places, 100, {.wire = 2}), 200);
  places.BeginStep(2);
  EXPECT_EQ(Take(places, 100, {.wire = 2}), 100);
  EXPECT_EQ(Take(places, 100, {.wire = 2}), 0);
  EXPECT_EQ(places.taken_bytes(), 300);
  EXPECT_EQ(Take(places, 1, {.wire = 2}), -1) << "the last place is in use in this step";
}

TEST(StagingPlacesTest, APlaceKnowsTheLastUseOfAllItsBytes) {
  StagingPlaces places(300, /*steps_ahead=*/0);
  places.BeginStep(0);
  EXPECT_EQ(places.Take(100, {.wire = 2, .unpack = 0})->before, StepUse{});
  EXPECT_EQ(Take(places, 100, {.wire = 1, .unpack = 1}), 100);
  EXPECT_EQ(Take(places, 100, {.wire = 3}), 200);
  places.BeginStep(3);
  const std::optional<StagingPlaces::Place> both = places.Take(150, {.wire = 5});
  ASSERT_TRUE(both.has_value());
  EXPECT_EQ(both->offset, 0);
  EXPECT_EQ(both->before, (StepUse{.wire = 2, .unpack = 1}));
  EXPECT_EQ(places.Take(50, {.wire = 5})->before, (StepUse{.wire = 1, .unpack = 1}));
  EXPECT_EQ(places.taken_bytes(), 300);
}

TEST(StagingPlacesTest, PiecesWithAGapBetweenThemAreNoPlace) {
  StagingPlaces places(300, /*steps_ahead=*/0);
  places.BeginStep(0);
  EXPECT_EQ(Take(places, 100, {.wire = 0}), 0);
  EXPECT_EQ(Take(places, 100, {.wire = 7}), 100);
  places.BeginStep(1);
  EXPECT_EQ(Take(places, 150, {.wire = 1}), -1);
  EXPECT_EQ(Take(places, 100, {.wire = 1}), 0);
  EXPECT_EQ(places.taken_bytes(), 200);
}

TEST(StagingPlacesTest, NothingFitsIntoNothing) {
  StagingPlaces places(0, /*steps_ahead=*/1);
  places.BeginStep(0);
  EXPECT_EQ(Take(places, 1, {.wire = 0}), -1);
}

}  // namespace
}  // namespace crossmesh

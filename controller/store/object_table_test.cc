#include "controller/store/object_table.h"

#include "common/testing/status_matchers.h"

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include <absl/time/time.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(ObjectTable, CommitsAreFoundThoughTheirRevisionsHaveGaps) {
  ObjectTable table(2);
  const StoredCommit second{7, {{"b", "2"}}};
  const StoredCommit third{20, {{"a", std::nullopt}}};
  table.Apply({3, {{"a", "1"}}});
  table.Apply(second);
  table.Apply(third);
  EXPECT_EQ(table.revision(), 20);
  EXPECT_EQ(table.RevisionOf("a"), 0);
  EXPECT_EQ(table.RevisionOf("b"), 7);
  EXPECT_THAT(table.CommitsAfter(2, 9, absl::ZeroDuration()),
              StatusIs(absl::StatusCode::kOutOfRange, HasSubstr("at least 3,")));
  EXPECT_THAT(table.CommitsAfter(3, 9, absl::ZeroDuration()),
              IsOkAndHolds(ElementsAre(second, third)));
  EXPECT_THAT(table.CommitsAfter(8, 9, absl::ZeroDuration()), IsOkAndHolds(ElementsAre(third)));
  EXPECT_THAT(table.CommitsAfter(20, 9, absl::ZeroDuration()), IsOkAndHolds(IsEmpty()));
}

TEST(ObjectTable, WhatIsLoadedReplacesEverythingAndEndsWhatCanBeFollowed) {
  ObjectTable table(10);
  table.Apply({3, {{"a", "1"}}});
  table.Reset({{"b", "2", 5}, {"c", "3", 9}}, 9);
  EXPECT_THAT(table.Get("a"), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_EQ(table.RevisionOf("b"), 5);
  EXPECT_THAT(table.CommitsAfter(3, 9, absl::ZeroDuration()),
              StatusIs(absl::StatusCode::kOutOfRange));
  EXPECT_THAT(table.CommitsAfter(9, 9, absl::ZeroDuration()), IsOkAndHolds(IsEmpty()));
}

TEST(ObjectTable, WhatIsLoadedOfTheSameRevisionKeepsItsCommits) {
  ObjectTable table(10);
  const StoredCommit commit{3, {{"a", "1"}}};
  table.Apply(commit);
  table.Reset({{"a", "1", 3}}, 3);
  EXPECT_THAT(table.CommitsAfter(0, 9, absl::ZeroDuration()), IsOkAndHolds(ElementsAre(commit)));
}

}  // namespace
}  // namespace crossmesh

#include "common/plan/slicing_proof.h"

#include "common/base/check.h"
#include "common/plan/testing/tables.h"
#include "common/testing/status_matchers.h"

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

Slicing SlicingOf(const TensorTable& tensors) {
  absl::StatusOr<Slicing> slicing = Slicing::Create(tensors);
  CHECK_OK(slicing);
  return *std::move(slicing);
}

// That the slicing of a table is not one of another table.
void ExpectInternal(const TensorTable& tensors, const TensorTable& others,
                    const ::testing::Matcher<std::string>& message) {
  EXPECT_OK(ProveSlicing(others, SlicingOf(others)).status());
  EXPECT_THAT(ProveSlicing(tensors, SlicingOf(others)).status(),
              StatusIs(absl::StatusCode::kInternal, message));
}

TensorTable HalvesToAll() {
  return TableOf({TensorOf("[8, 4]: x=2 on a.0-1 [x, -] -> x=2 on b.0-1 [-, -]")});
}

TEST(SlicingProofTest, FindsASlicingOfOtherLayouts) {
  for (const char* tensor : {"[8, 4]: x=2 on a.0-1 [x, -] -> x=2 on b.0-1 [x, -]",
                             "[8, 4]: x=2 on a.0-1 [x, -] -> x=2 on b.0-1 [-, x]"}) {
    const TensorTable other = TableOf({TensorOf(tensor)});
    ExpectInternal(HalvesToAll(), other, HasSubstr("of its destination tile"));
    ExpectInternal(other, HalvesToAll(), HasSubstr("inside the tile of its receiver b."));
  }
  const TensorTable swapped =
      TableOf({TensorOf("[8, 4]: x=2 on a.1,a.0 [x, -] -> x=2 on b.0-1 [-, -]")});
  ExpectInternal(HalvesToAll(), swapped, HasSubstr("inside the tile of its holder"));
}

TEST(SlicingProofTest, FindsADeviceThatHoldsNothing) {
  const TensorTable both = TableOf({TensorOf("[8, 4]: x=2 on a.0-1 [-, -] -> x=1 on b.0 [-, -]")});
  const TensorTable one =
      TableOf({TensorOf("[8, 4]: x=2 on a.0-1 {[0:8, 0:4]; } -> x=1 on b.0 [-, -]")});
  ExpectInternal(one, both, HasSubstr("inside the tile of its holder a.1"));
}

TEST(SlicingProofTest, FindsASlicingOfOtherTensors) {
  const TensorTable longer =
      TableOf({TensorOf("[8, 6]: x=2 on a.0-1 [x, -] -> x=2 on b.0-1 [-, -]")});
  ExpectInternal(HalvesToAll(), longer, HasSubstr("cuts ascending from 0 to 4 in dimension 1"));
  TensorTable::Spec twice = HalvesToAll().spec();
  twice.group_of_tensor = {0, 0};
  ASSERT_OK_AND_ASSIGN(const TensorTable tensors, TensorTable::Create(std::move(twice)));
  ExpectInternal(tensors, HalvesToAll(), AllOf(HasSubstr("class 0"), HasSubstr("128 bytes")));
}

TEST(SlicingProofTest, FindsASlicingOfOtherConversions) {
  const TensorText as_half =
      TensorOf("[4]: x=1 on a.0 [-] -> x=1 on b.0 [-]", DataType::kF32, DataType::kF16);
  TensorText as_brain = as_half;
  as_brain.sent_as = DataType::kBF16;
  // As many bytes of the same devices: a class of both tensors, where there are two.
  ExpectInternal(
      TableOf({as_half, as_brain}), TableOf({as_half, as_half}),
      AllOf(HasSubstr("group 1"), HasSubstr("expected conversion 1 of class 0, found 0")));
}

TEST(SlicingProofTest, FindsACellThatEndsOrBeginsOutsideOfItsTile) {
  const TensorTable whole = TableOf({TensorOf("[8]: x=1 on a.0 [-] -> x=1 on b.0 [-]")});
  for (const char* part :
       {"[8]: x=1 on a.0 {[1:8]} -> x=1 on b.0 [-]", "[8]: x=1 on a.0 {[0:7]} -> x=1 on b.0 [-]"}) {
    ExpectInternal(TableOf({TensorOf(part)}), whole,
                   "tensor group 0 of shape [8], box [0:8]: expected inside the tile of its holder "
                   "a.0, found outside");
  }
}

TEST(SlicingProofTest, NamesTheDeviceWhoseTileACellIsOutsideOf) {
  const auto expect_named = [](const char* part, const char* device) {
    const TensorTable whole = TableOf({TensorOf("[8]: x=2 on a.0-1 [-] -> x=1 on b.0 [-]")});
    ExpectInternal(TableOf({TensorOf(part)}), whole, HasSubstr(absl::StrCat("holder ", device)));
  };
  expect_named("[8]: x=2 on a.1,a.0 {[0:8]; } -> x=1 on b.0 [-]", "a.0");
  // Of two tiles that of the first slot.
  expect_named("[8]: x=2 on a.1,a.0 {[0:2]; [0:4]} -> x=1 on b.0 [-]", "a.1");
}

TEST(SlicingProofTest, NamesADeviceInScope) {
  const TensorTable all = TableOf({TensorOf("[8]: x=3 on a.0-2 [-] -> x=1 on b.0 [-]")});
  const TensorTable one =
      TableOf({TensorOf("[8]: x=3 on a.0,a.2,a.1 {[0:8]; [0:8]; } -> x=1 on b.0 [-]")});
  const std::vector<DeviceRank> scope = {1};
  EXPECT_THAT(ProveSlicing(one, SlicingOf(all), scope).status(),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("holder a.1")));
}

TEST(SlicingProofTest, FindsASlicingOfOtherGroupsDimensionsOrDevices) {
  const TensorText text = TensorOf("[8]: x=1 on a.0 [-] -> x=1 on b.0 [-]");
  ExpectInternal(TableOf({text}), TableOf({text, text}), "slicing: expected 1 grids, found 2");
  ExpectInternal(HalvesToAll(), TableOf({TensorOf("[8]: x=2 on a.0-1 [x] -> x=2 on b.0-1 [-]")}),
                 "slices of tensor group 0 of shape [8, 4]: expected 2 dimensions, found 1");
  ExpectInternal(TableOf({text}), TableOf({TensorOf("[8]: x=1 on a.0 [-] -> x=2 on b.0-1 [-]")}),
                 "device set 1: expected ascending ranks below 2, found 2 after 1");
}

TEST(SlicingProofTest, TellsHowMuchOfATileIsMissingOnTheFirstDeviceAsOnTheLast) {
  ExpectInternal(
      TableOf({TensorOf("[8]: x=1 on c.0 [-] -> x=2 on a.0,b.0 [-]")}),
      TableOf({TensorOf("[8]: x=1 on c.0 [-] -> x=2 on a.0,b.0 {[0:6]; [0:8]}")}),
      "tensor group 0 of shape [8], device a.0: expected 8 elements of its destination tile in the "
      "classes it needs, found 6");
  ExpectInternal(
      TableOf({TensorOf("[8]: x=1 on a.0 [-] -> x=2 on b.0,c.0 [-]")}),
      TableOf({TensorOf("[8]: x=1 on a.0 [-] -> x=2 on b.0,c.0 {[0:8]; [0:6]}")}),
      "tensor group 0 of shape [8], device c.0: expected 8 elements of its destination tile in the "
      "classes it needs, found 6");
}

TEST(SlicingProofTest, AcceptsWhatIsEmptyOrSharedOrInAnotherOrder) {
  const TensorText text = TensorOf("[8]: x=2 on a.0-1 [x] -> x=2 on b.0-1 [-]");
  TensorTable::Spec unused = TableSpecOf({text, text});
  unused.group_of_tensor = {0};
  ASSERT_OK_AND_ASSIGN(const TensorTable without_second, TensorTable::Create(std::move(unused)));
  EXPECT_OK(ProveSlicing(without_second, SlicingOf(without_second)));
  for (const TensorTable& tensors :
       {TableOf({text, text}),
        TableOf({TensorOf("[0, 4]: x=2 on a.0-1 [x, -] -> x=2 on b.0-1 [-, x]")}),
        TableOf({TensorOf("[]: x=1 on a.0 [] -> x=1 on b.0 []")}),
        TableOf({TensorOf("[8]: x=1 on a.0 {[4:8] [0:4]} -> x=1 on b.0 {[6:8] [0:2] [2:6]}")})}) {
    EXPECT_OK(ProveSlicing(tensors, SlicingOf(tensors)));
  }
}

TEST(SlicingProofTest, CountsTheMemoryOfEachDevice) {
  // Two tensors of the first group, whose tiles stay, and one of the second.
  TensorTable::Spec spec =
      TableSpecOf({TensorOf("[4]: x=2 on a.0-1 [x] -> x=2 on a.0-1 [x]"),
                   TensorOf("[6]: x=1 on a.0 [-] -> x=2 on a.0-1 [x]", DataType::kU8)});
  spec.group_of_tensor = {0, 0, 1};
  ASSERT_OK_AND_ASSIGN(const TensorTable tensors, TensorTable::Create(std::move(spec)));
  const Slicing slicing = SlicingOf(tensors);
  ASSERT_OK_AND_ASSIGN(const TileFootprint all, ProveSlicing(tensors, slicing));
  EXPECT_THAT(all.source_bytes, ElementsAre(2 * 8 + 6, 2 * 8));
  EXPECT_THAT(all.destination_bytes, ElementsAre(2 * 8 + 3, 2 * 8 + 3));
  EXPECT_THAT(all.moved_group, ElementsAre(1, 1));
  EXPECT_THAT(ProveInPlace(tensors, all),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       "device a.0, tensor group 1 of shape [6]: expected the same tile, of the "
                       "same type, on both sides, since source and destination are one storage "
                       "that is written in place, found others"));
  const std::vector<DeviceRank> second = {1};
  ASSERT_OK_AND_ASSIGN(const TileFootprint scoped, ProveSlicing(tensors, slicing, second));
  EXPECT_THAT(scoped.source_bytes, ElementsAre(0, 2 * 8));
  EXPECT_THAT(scoped.destination_bytes, ElementsAre(0, 2 * 8 + 3));
  EXPECT_THAT(scoped.moved_group, ElementsAre(-1, 1));
  EXPECT_THAT(ProveInPlace(tensors, scoped),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("device a.1")));
}

// A slicing is immutable to all but these tests: no table gives one that is not right in itself.
GroupGrid& GridOf(Slicing& slicing) { return const_cast<GroupGrid&>(slicing.grid(0)); }

// Class 0 are the cells 0 and 2, for b.0, and class 1 the cells 1 and 3, for b.1; 16 bytes each.
constexpr char kInterleaved[] = "[8]: x=1 on a.0 [-] -> y=2 on b.0-1 {[0:2] [4:6]; [2:4] [6:8]}";

void ExpectFault(const char* tensor, const std::function<void(Slicing& slicing)>& change,
                 const std::string& message) {
  const TensorTable tensors = TableOf({TensorOf(tensor)});
  Slicing slicing = SlicingOf(tensors);
  change(slicing);
  EXPECT_THAT(ProveSlicing(tensors, slicing).status(),
              StatusIs(absl::StatusCode::kInternal, message));
}

void ExpectGridFault(const std::function<void(GroupGrid& grid)>& change,
                     const std::string& message) {
  ExpectFault(
      kInterleaved, [&](Slicing& slicing) { change(GridOf(slicing)); },
      absl::StrCat("slices of tensor group 0 of shape [8]: expected ", message));
}

TEST(SlicingProofTest, FindsRanksThatDoNotAscend) {
  const auto expect_fault = [](int32_t set, size_t place, DeviceRank rank, const char* found) {
    ExpectFault(
        "[8]: x=2 on a.0-1 [x] -> x=2 on b.0-1 [-]",
        [&](Slicing& s) { const_cast<DeviceRank&>(s.device_set(set)[place]) = rank; },
        absl::StrCat("device set ", set, ": expected ascending ranks below 4, found ", found));
  };
  expect_fault(0, 0, -1, "-1 after -1");
  expect_fault(2, 1, 4, "4 after 2");
  expect_fault(2, 1, 2, "2 after 2");
  expect_fault(2, 1, 1, "1 after 2");
}

TEST(SlicingProofTest, FindsCutsAndCellsThatAreNoGrid) {
  const std::string cuts = "cuts ascending from 0 to 8 in dimension 0, found others";
  ExpectGridFault([](GroupGrid& grid) { grid.cuts[0].clear(); }, cuts);
  ExpectGridFault([](GroupGrid& grid) { grid.cuts[0].front() = 1; }, cuts);
  ExpectGridFault([](GroupGrid& grid) { grid.cuts[0].back() = 9; }, cuts);
  ExpectGridFault([](GroupGrid& grid) { grid.cuts[0][2] = 2; }, cuts);
  ExpectGridFault([](GroupGrid& grid) { grid.class_of_cell.pop_back(); }, "4 cells, found 3");
  for (const ClassIndex c : {-2, 2}) {
    ExpectGridFault([&](GroupGrid& grid) { grid.class_of_cell[0] = c; },
                    absl::StrCat("classes below 2, found ", c));
  }
}

TEST(SlicingProofTest, FindsListsOfOtherLengths) {
  const std::string lengths = "cells listed by class, found lists of other lengths";
  ExpectGridFault([](GroupGrid& grid) { grid.first.push_back(4); }, lengths);
  ExpectGridFault([](GroupGrid& grid) { grid.bytes.push_back(16); }, lengths);
  ExpectGridFault([](GroupGrid& grid) { grid.first.front() = 1; }, lengths);
  ExpectGridFault([](GroupGrid& grid) { grid.cells.push_back(3); }, lengths);
  // Of one class alone.
  ExpectFault(
      "[8]: x=1 on a.0 [-] -> x=1 on b.0 [-]",
      [](Slicing& slicing) { GridOf(slicing).first.front() = 1; },
      absl::StrCat("slices of tensor group 0 of shape [8]: expected ", lengths));
  ExpectGridFault(
      [](GroupGrid& grid) {
        grid.classes.pop_back();
        grid.bytes.pop_back();
        grid.first = {0, 2};
        grid.cells = {0, 2};
      },
      "4 cells listed by class, found 2");
}

TEST(SlicingProofTest, FindsClassesThatAreNotListedOnceInTheirOrder) {
  const std::string listed = "classes listed ascending, each with a cell, found class ";
  ExpectGridFault([](GroupGrid& grid) { grid.classes[0] = -1; }, listed + "-1");
  ExpectGridFault([](GroupGrid& grid) { grid.classes[1] = 2; }, listed + "2");
  ExpectGridFault([](GroupGrid& grid) { grid.first[1] = 0; }, listed + "0");
  ExpectGridFault(
      [](GroupGrid& grid) {
        grid.classes = {1, 0};
        grid.cells = {1, 3, 0, 2};
      },
      listed + "0");
  ExpectGridFault(
      [](GroupGrid& grid) {
        grid.classes = {1, 1};
        grid.cells = {1, 3, 1, 3};
      },
      listed + "1");
}

TEST(SlicingProofTest, FindsCellsThatAreNotListedOnceInTheirOrder) {
  const auto expect_fault = [](int32_t first, int32_t second, int32_t found) {
    ExpectGridFault(
        [&](GroupGrid& grid) {
          grid.cells[0] = first;
          grid.cells[1] = second;
        },
        absl::StrCat("cells of class 0 listed ascending, found cell ", found));
  };
  expect_fault(-1, 2, -1);
  expect_fault(0, 4, 4);
  expect_fault(0, 1, 1);
  expect_fault(0, 0, 0);
  expect_fault(2, 0, 0);
}

TEST(SlicingProofTest, FindsOtherBytesOfAClass) {
  ExpectGridFault([](GroupGrid& grid) { grid.bytes[1] = 17; }, "16 bytes of class 1, found 17");
  ExpectFault(
      kInterleaved,
      [](Slicing& slicing) { const_cast<SliceClass&>(slicing.classes()[1]).bytes = 15; },
      "class 1: expected 16 bytes in its cells, found 15");
}

}  // namespace
}  // namespace crossmesh

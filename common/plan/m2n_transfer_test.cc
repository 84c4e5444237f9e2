#include "common/plan/m2n_transfer.h"

#include "common/base/check.h"
#include "common/plan/testing/for_each_seed.h"
#include "common/plan/testing/random_tensors.h"
#include "common/plan/testing/tables.h"
#include "common/testing/status_matchers.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int32_t kReplicate = M2nSide::kReplicate;

absl::StatusOr<M2nTransfer> TransferOf(const TensorText& tensor) {
  return M2nTransferOf(TableOf({tensor}), 0);
}

// Elements by their numbers in the whole tensor, row-major: what a buffer would have if every
// element had its number as value.
using Elements = std::vector<int64_t>;

void AppendBox(const std::vector<int64_t>& shape, const std::vector<Interval>& box, size_t d,
               int64_t number, Elements& elements) {
  if (d == shape.size()) return elements.push_back(number);
  for (int64_t i = box[d].begin; i < box[d].end; ++i) {
    AppendBox(shape, box, d + 1, number * shape[d] + i, elements);
  }
}

// Gathered, then sliced: what the table says that a device has.
Elements OfTable(const TensorTable& tensors, Side side, DeviceRank device) {
  const auto lengths = tensors.groups()[0].shape.lengths();
  Elements elements;
  for (const Box& box : tensors.TileOf(side, 0, device)) {
    AppendBox({lengths.begin(), lengths.end()}, {box.intervals().begin(), box.intervals().end()}, 0,
              0, elements);
  }
  return elements;
}

// What M2N takes a rank to have: position in the mesh by row-major order, part by the position on
// the axis that cuts, equal parts (computeMeshGroupInfo, computeGlobalRange).
Elements OfM2n(const M2nSide& side, int64_t place) {
  std::vector<int64_t> dims = side.mesh;
  std::vector<int32_t> placements = side.placements;
  dims.resize(2, 1);
  placements.resize(2, kReplicate);
  const std::vector<int64_t> position = {place / dims[1], place % dims[1]};
  std::vector<int64_t> shape = side.local_shape;
  std::vector<Interval> box;
  for (const int64_t length : side.local_shape) box.push_back({0, length});
  for (int axis = 0; axis < 2; ++axis) {
    if (placements[axis] == kReplicate) continue;
    const int32_t d = placements[axis];
    shape[d] *= dims[axis];
    box[d] = {position[axis] * side.local_shape[d], (position[axis] + 1) * side.local_shape[d]};
  }
  Elements elements;
  AppendBox(shape, box, 0, 0, elements);
  return elements;
}

// Rank by rank, and no others.
bool IsSide(const TensorTable& tensors, Side side, const M2nSide& said) {
  for (DeviceRank device = 0; device < std::ssize(tensors.devices()); ++device) {
    const bool is_there = said.first_rank <= device && device < said.first_rank + said.ranks();
    const Elements expected = OfTable(tensors, side, device);
    if (expected != (is_there ? OfM2n(said, device - said.first_rank) : Elements())) return false;
  }
  return true;
}

// All ways to join neighbouring dimensions so that one to three are left.
std::vector<std::vector<int64_t>> JoinedShapes(const Shape& shape) {
  std::vector<std::vector<int64_t>> all;
  const int inner = std::max(shape.rank() - 1, 0);
  for (int borders = 0; borders < (1 << inner); ++borders) {
    std::vector<int64_t> joined = {1};
    for (int d = 0; d < shape.rank(); ++d) {
      if (d > 0 && (borders >> (d - 1) & 1) != 0) joined.push_back(1);
      joined.back() *= shape[d];
    }
    if (joined.size() <= 3) all.push_back(joined);
  }
  return all;
}

// Is there a description of this side, of a tensor of this shape? All of them are tried.
bool CanSay(const TensorTable& tensors, Side side, const std::vector<int64_t>& shape) {
  const std::vector<DeviceRank>& slots = tensors.slots(side, tensors.placement_of(side, 0));
  const DeviceRank first = std::ranges::min(slots);
  if (std::ranges::max(slots) - first + 1 != std::ssize(slots)) return false;
  for (int64_t rows = 1; rows <= std::ssize(slots); ++rows) {
    const std::vector<int64_t> mesh = {rows, std::ssize(slots) / rows};
    if (mesh[0] * mesh[1] != std::ssize(slots)) continue;
    M2nSide whole = {mesh, {kReplicate, kReplicate}, first, shape};
    if (IsSide(tensors, side, whole)) return true;
    for (int32_t d = 0; d < std::ssize(shape); ++d) {
      for (int axis = 0; axis < 2; ++axis) {
        M2nSide cut = whole;
        cut.placements[axis] = d;
        if (shape[d] % mesh[axis] != 0) continue;
        cut.local_shape[d] /= mesh[axis];
        if (IsSide(tensors, side, cut)) return true;
      }
    }
  }
  return false;
}

bool CanSay(const TensorTable& tensors) {
  const TensorGroup& group = tensors.groups()[0];
  if (tensors.conversion_of(0) != kNoConversion || group.shape.elements() == 0) return false;
  std::set<DeviceRank> devices;
  for (const Side side : {Side::kSource, Side::kDestination}) {
    for (const DeviceRank d : tensors.slots(side, tensors.placement_of(side, 0))) {
      if (!devices.insert(d).second) return false;
    }
  }
  return std::ranges::any_of(JoinedShapes(group.shape), [&](const std::vector<int64_t>& shape) {
    return CanSay(tensors, Side::kSource, shape) && CanSay(tensors, Side::kDestination, shape);
  });
}

// Whether it was said.
bool CheckAgainstReference(const TensorTable& tensors) {
  const absl::StatusOr<M2nTransfer> said = M2nTransferOf(tensors, 0);
  EXPECT_EQ(said.ok(), CanSay(tensors)) << said.status();
  if (!said.ok()) {
    EXPECT_THAT(said.status(), StatusIs(absl::StatusCode::kInvalidArgument,
                                        AllOf(HasSubstr("by NCCL M2N: "), HasSubstr("expected "),
                                              HasSubstr(", found "))));
    return false;
  }
  EXPECT_TRUE(IsSide(tensors, Side::kSource, said->source));
  EXPECT_TRUE(IsSide(tensors, Side::kDestination, said->destination));
  for (const M2nSide* const side : {&said->source, &said->destination}) {
    EXPECT_LE(side->local_shape.size(), 3);
    EXPECT_LE(side->mesh.size(), 2);
    EXPECT_EQ(side->mesh.size(), side->placements.size());
    EXPECT_LE(std::ranges::count_if(side->placements, [](int32_t p) { return p >= 0; }), 1);
  }
  return true;
}

// "[x*y, -] ..." over up to three axes of one, two or three slots.
std::string RandomSide(RandomSource& random, const std::string& host, int64_t rank) {
  std::vector<std::string> cuts(rank);
  std::string axes;
  int64_t slots = 1;
  for (const std::string axis : {"x", "y", "z"}) {
    const int64_t size = random.Between(1, 3);
    if (slots * size > 9) continue;
    slots *= size;
    absl::StrAppend(&axes, axes.empty() ? "" : ",", axis, "=", size);
    const int64_t dimension = random.Below(rank + 1);
    if (dimension < rank) {
      absl::StrAppend(&cuts[dimension], cuts[dimension].empty() ? "" : "*", axis);
    }
  }
  std::string layout;
  for (const std::string& cut : cuts) {
    absl::StrAppend(&layout, layout.empty() ? "" : ", ", cut.empty() ? "-" : cut);
  }
  return absl::StrCat(axes, " on ", host, ".0-", slots - 1, " [", layout, "] balanced");
}

TEST(M2nTransferPropertyTest, WhatIsSaidGivesEveryRankItsTileAndAllElseIsRefused) {
  int64_t said = 0, refused = 0;
  ForEachSeed(600, [&](RandomSource& random) {
    const int64_t rank = random.Between(1, 4);
    std::vector<std::string> lengths;
    for (int64_t d = 0; d < rank; ++d) {
      lengths.push_back(absl::StrCat(random.Pick<int64_t>({1, 2, 3, 4, 6})));
    }
    const std::string text =
        absl::StrCat("[", absl::StrJoin(lengths, ", "), "]: ", RandomSide(random, "a", rank),
                     " -> ", RandomSide(random, "b", rank));
    SCOPED_TRACE(text);
    CheckAgainstReference(TableOf({TensorOf(text)})) ? ++said : ++refused;
  });
  EXPECT_GE(said, 100);
  EXPECT_GE(refused, 100);
}

TEST(M2nTransferPropertyTest, TablesOfAllKindsAreSaidOrRefusedAsTheReferenceDoes) {
  ForEachSeed(600, [](RandomSource& random) {
    const TensorTable tensors =
        RandomTensorTable(random, {.slots_max = 6, .tensors_max = 1, .length_max = 6});
    if (!tensors.groups().empty()) CheckAgainstReference(tensors);
  });
}

TEST(M2nTransferTest, ACutAndCopiesAreTwoAxesInTheOrderOfTheDevices) {
  ASSERT_OK_AND_ASSIGN(const M2nTransfer transfer,
                       TransferOf(TensorOf("[8, 6]: data=2,model=2 on a.0-3 [model, -] -> "
                                           "model=3,data=2 on b.0-5 [-, model]")));
  EXPECT_EQ(transfer.source, (M2nSide{{2, 2}, {kReplicate, 0}, 0, {4, 6}}));
  EXPECT_EQ(transfer.destination, (M2nSide{{3, 2}, {1, kReplicate}, 4, {8, 2}}));
  EXPECT_EQ(ToString(transfer.source), "mesh [2, 2] from rank 0, placements [-, 0], tiles [4, 6]");
  EXPECT_EQ(transfer.source.parts(), 2);
  EXPECT_EQ(transfer.source.PartOf(3), 1);
  EXPECT_EQ(transfer.destination.parts(), 3);
  EXPECT_EQ(transfer.destination.PartOf(7), 1);
}

TEST(M2nTransferTest, ManyAxesThatCutOneDimensionInTheirOrderAreOne) {
  ASSERT_OK_AND_ASSIGN(
      const M2nTransfer transfer,
      TransferOf(TensorOf("[8, 6]: x=2,y=2,z=2 on a.0-7 [x*y*z, -] -> z=1 on b.0 [-, -]")));
  EXPECT_EQ(transfer.source, (M2nSide{{1, 8}, {kReplicate, 0}, 0, {6}}));
  EXPECT_EQ(transfer.destination, (M2nSide{{1}, {kReplicate}, 8, {48}}));
}

TEST(M2nTransferTest, SlotsInAnotherOrderThanTheirDevicesAreSaidByDevice) {
  ASSERT_OK_AND_ASSIGN(
      const M2nTransfer transfer,
      TransferOf(TensorOf("[8]: x=2,y=2 on a.0,a.2,a.1,a.3 [x] -> z=1 on b.0 [-]")));
  EXPECT_EQ(transfer.source, (M2nSide{{2, 2}, {kReplicate, 0}, 0, {4}}));
}

TEST(M2nTransferTest, DimensionsThatNoCutPartsAreJoined) {
  ASSERT_OK_AND_ASSIGN(const M2nTransfer transfer,
                       TransferOf(TensorOf("[2, 3, 4, 5, 6, 7]: x=2 on a.0-1 [-, -, x, -, -, -] -> "
                                           "y=3 on b.0-2 [-, -, -, -, y, -]")));
  EXPECT_EQ(transfer.source, (M2nSide{{1, 2}, {kReplicate, 1}, 0, {6, 10, 42}}));
  EXPECT_EQ(transfer.destination, (M2nSide{{1, 3}, {kReplicate, 2}, 2, {6, 20, 14}}));
}

TEST(M2nTransferTest, TwoCutsAreOneWhereTheFirstLeavesNothingOfItsDimension) {
  // Experts, each of which is cut by rows.
  ASSERT_OK_AND_ASSIGN(const M2nTransfer transfer,
                       TransferOf(TensorOf("[2, 8, 5]: expert=2,model=2 on a.0-3 "
                                           "[expert, model, -] -> z=1 on b.0 [-, -, -]")));
  EXPECT_EQ(transfer.source, (M2nSide{{1, 4}, {kReplicate, 0}, 0, {20}}));
}

TEST(M2nTransferTest, AScalarIsOneElement) {
  ASSERT_OK_AND_ASSIGN(const M2nTransfer transfer,
                       TransferOf(TensorOf("[]: x=1 on a.0 [] -> y=2 on b.0-1 []")));
  EXPECT_EQ(transfer.destination, (M2nSide{{2}, {kReplicate}, 1, {1}}));
}

struct RefusedCase {
  std::string tensor;
  std::string reason;
};

TEST(M2nTransferTest, ARefusalNamesTensorSideExpectedAndFound) {
  const std::vector<RefusedCase> cases = {
      {"[0, 4]: x=1 on a.0 [-, -] -> y=1 on b.0 [-, -]", "expected elements, found shape [0, 4]"},
      {"[8]: x=2 on a.0,a.2 [x] -> y=1 on a.1 [-]",
       "source: expected devices that follow each other among all of the request, found a.1 "
       "between a.0 and a.2"},
      {"[8]: x=2 on a.0-1 [x] -> y=2 on a.1-2 [y]",
       "expected sides without a device in common, found a.1"},
      {"[8, 8]: x=2,y=2 on a.0-3 [x, y] -> z=1 on b.0 [-, -]",
       "source: expected a cut of one dimension, found tile [0:4, 0:4]"},
      {"[9]: x=1 on a.0 [-] -> y=2 on b.0-1 [y] chunk",
       "destination: expected equal parts of shape [9], found tile [0:5]"},
      {"[1]: x=1 on a.0 [-] -> y=2 on b.0-1 [y] chunk",
       "destination: expected one box in every slot, found 0 in one"},
      {"[8]: x=1 on a.0 [-] -> y=2 on b.0-1 {[0:3]; [3:6]}",
       "destination: expected equal parts of shape [8], found tile [0:3]"},
      {"[8]: x=2,y=2 on a.0-3 [y*x] -> z=1 on b.0 [-]",
       "source: expected parts in the order of devices, all of them again and again or each so "
       "often, found 4 parts on 4 devices in another order"},
      {"[8]: x=2,y=2,z=2 on a.0-7 [y] -> w=1 on b.0 [-]",
       "source: expected parts in the order of devices, all of them again and again or each so "
       "often, found 2 parts on 8 devices in another order"},
      {"[65536, 32769]: x=1 on a.0 [-, -] -> y=1 on b.0 [-, -]",
       "expected tiles of at most 2147483648 bytes, found 8590196736"},
      {"[16384, 32769]: x=1 on a.0 [-, -] -> y=1 on b.0 [-, -]",
       "expected tiles of at most 2147483648 bytes, found 2147549184"},
      {"[17, 2]: x=17 on a.0-16 [x, -] -> y=2 on b.0-1 [-, y]",
       "expected at most 16 source parts in one of the destination, found 17"},
      {"[2, 65]: x=2 on a.0-1 [x, -] -> y=65 on b.0-64 [-, y]",
       "expected at most 64 destination parts in one of the source, found 65"},
      {"[32, 32]: x=32 on a.0-31 [x, -] -> y=2 on b.0-1 [-, y]",
       "expected at most 16 source parts in one of the destination, found 32"},
      {"[128, 128]: x=2 on a.0-1 [x, -] -> y=128 on b.0-127 [-, y]",
       "expected at most 64 destination parts in one of the source, found 128"},
  };
  for (const RefusedCase& c : cases) {
    SCOPED_TRACE(c.tensor);
    EXPECT_THAT(TransferOf(TensorOf(c.tensor)),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(HasSubstr("tensor"), HasSubstr(" by NCCL M2N: " + c.reason))));
  }
}

TEST(M2nTransferTest, ConversionsAndTheirScalesAreRefused) {
  const TensorTable tensors = TableOf({TensorOf(
      "[128, 128]: x=1 on a.0 [-, -] -> y=1 on b.0 [-, -]", DataType::kBF16, DataType::kF8E4M3)});
  ASSERT_EQ(tensors.groups().size(), 2);
  EXPECT_THAT(M2nTransferOf(tensors, 0),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("expected one type on both sides, found BF16 and F8_E4M3")));
  EXPECT_THAT(M2nTransferOf(tensors, 1),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("expected a tensor that the source holds, found scales")));
}

TEST(M2nTransferTest, WhatIsAtALimitIsSaid) {
  for (const char* const tensor : {"[16384, 32768]: x=1 on a.0 [-, -] -> y=1 on b.0 [-, -]",
                                   "[16, 2]: x=16 on a.0-15 [x, -] -> y=2 on b.0-1 [-, y]",
                                   "[2, 64]: x=2 on a.0-1 [x, -] -> y=64 on b.0-63 [-, y]"}) {
    EXPECT_OK(TransferOf(TensorOf(tensor))) << tensor;
  }
}

// Of 32 parts 16 meet one of two, where both sides cut the same dimension.
TEST(M2nTransferTest, PartsThatDoNotMeetDoNotCount) {
  EXPECT_OK(TransferOf(TensorOf("[32, 2]: x=32 on a.0-31 [x, -] -> y=2 on b.0-1 [y, -]")));
}

}  // namespace
}  // namespace crossmesh

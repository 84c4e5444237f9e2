#include "common/plan/step_collective.h"

#include "common/mesh/box.h"
#include "common/mesh/layout.h"
#include "common/plan/testing/random_source.h"
#include "common/plan/testing/tables.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>
#include <absl/strings/str_replace.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

// "[8, 6]: [x, -] -> [-, -]", of a mesh whose first dimensions, so many, number summands.
struct StepCase {
  std::string text;
  std::string mesh = "x=4 on a.0-3";
  int32_t summands = 0;
  DataType type = DataType::kF32;
};

TensorTable StepTable(const StepCase& of) {
  const std::string text = absl::StrReplaceAll(
      of.text,
      {{": ", absl::StrCat(": ", of.mesh, " ")}, {"-> ", absl::StrCat("-> ", of.mesh, " ")}});
  TensorTable::Spec spec = TableOf({TensorOf(text, of.type)}).spec();
  spec.groups[0].slab = {.summand_dimensions = of.summands, .row_dimension = of.summands};
  return TensorTable::Create(std::move(spec)).value();
}

using Groups = std::vector<std::vector<DeviceRank>>;

std::optional<StepCollective> FoundIn(const StepCase& of,
                                      const std::optional<Reduction>& reduction = std::nullopt) {
  const auto found = FindStepCollective(StepTable(of), reduction);
  return found.has_value() ? std::optional(found->kind) : std::nullopt;
}

// None where there is no collective.
Groups GroupsIn(const StepCase& of, const std::optional<Reduction>& reduction = std::nullopt) {
  const auto found = FindStepCollective(StepTable(of), reduction);
  return found.has_value() ? found->groups : Groups();
}

// The elements of a tile of a matrix in the order of its memory, by their numbers in the matrix.
std::vector<int64_t> NumbersOf(const Tile& tile, int64_t columns) {
  std::vector<int64_t> elements;
  for (const Box& box : tile) {
    for (int64_t row = box[0].begin; row < box[0].end; ++row) {
      for (int64_t column = box[1].begin; column < box[1].end; ++column) {
        elements.push_back(row * columns + column);
      }
    }
  }
  return elements;
}

std::vector<int64_t> NumbersAt(const TensorTable& table, Side side, DeviceRank device) {
  return NumbersOf(table.TileOf(side, 0, device), table.groups()[0].shape.lengths()[1]);
}

// What NCCL gathers: the memory of all ranks of a group, one after the other, at each of them.
bool IsGathered(const TensorTable& table, const std::vector<DeviceRank>& group) {
  std::vector<int64_t> all;
  for (const DeviceRank device : group) {
    const std::vector<int64_t> piece = NumbersAt(table, Side::kSource, device);
    if (piece.size() != NumbersAt(table, Side::kSource, group[0]).size()) return false;
    all.insert(all.end(), piece.begin(), piece.end());
  }
  return std::ranges::all_of(group, [&](DeviceRank device) {
    return NumbersAt(table, Side::kDestination, device) == all;
  });
}

// Of a matrix of 8 x 6: its rows or columns in four parts, in any order of the devices.
std::string RandomPieces(RandomSource& random) {
  std::vector<std::string> tiles;
  const bool by_rows = !random.OneIn(3);
  for (int part = 0; part < 4; ++part) {
    tiles.push_back(by_rows ? absl::StrCat("[", 2 * part, ":", 2 * part + 2, ", 0:6]")
                            : absl::StrCat("[", 4 * (part / 2), ":", 4 * (part / 2) + 4, ", ",
                                           3 * (part % 2), ":", 3 * (part % 2) + 3, "]"));
  }
  if (random.OneIn(2)) random.Shuffle(tiles);
  return absl::StrCat("{", absl::StrJoin(tiles, "; "), "}");
}

// Four devices in one group, in the only order in which their memory can be that of the whole.
TEST(StepCollective, AnAllGatherIsWhatTheMemoryOfAGroupInItsOrderIs) {
  int gathers = 0;
  int others = 0;
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    RandomSource random(seed);
    const StepCase of{absl::StrCat("[8, 6]: ", RandomPieces(random), " -> [-, -]")};
    const TensorTable table = StepTable(of);
    std::vector<DeviceRank> order = {0, 1, 2, 3};
    bool expected = false;
    do {
      expected = IsGathered(table, order);
    } while (!expected && std::ranges::next_permutation(order).found);
    EXPECT_EQ(GroupsIn(of), expected ? Groups{order} : Groups()) << seed << ": " << of.text;
    ++(expected ? gathers : others);
  }
  EXPECT_GT(gathers, 20);
  EXPECT_GT(others, 20);
}

// Rows and columns cut by any axes of three, in any order, before and after.
TEST(StepCollective, WhatIsFoundOnAMeshOfThreeAxesIsGatheredByEveryGroup) {
  int found_count = 0;
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    RandomSource random(seed);
    const auto layout = [&] {
      std::vector<std::string> axes = {"x", "y", "z"};
      random.Shuffle(axes);
      const auto cut = static_cast<size_t>(random.Between(0, 3));
      const auto of_rows = static_cast<size_t>(random.Between(0, static_cast<int64_t>(cut)));
      const auto text = [&](size_t begin, size_t end) {
        const std::vector<std::string> part(axes.begin() + begin, axes.begin() + end);
        return part.empty() ? "-" : absl::StrJoin(part, "*");
      };
      return absl::StrCat("[", text(0, of_rows), ", ", text(of_rows, cut), "]");
    };
    const StepCase of{absl::StrCat("[8, 8]: ", layout(), " -> ", layout()),
                      "x=2,y=2,z=2 on a.0-3,b.0-3"};
    const TensorTable table = StepTable(of);
    const Groups groups = GroupsIn(of);
    if (groups.empty()) continue;
    ++found_count;
    std::vector<DeviceRank> members;
    for (const std::vector<DeviceRank>& group : groups) {
      EXPECT_TRUE(IsGathered(table, group)) << seed << ": " << of.text;
      members.insert(members.end(), group.begin(), group.end());
    }
    std::ranges::sort(members);
    EXPECT_EQ(members, (std::vector<DeviceRank>{0, 1, 2, 3, 4, 5, 6, 7})) << of.text;
  }
  EXPECT_GT(found_count, 15);
}

TEST(StepCollective, GroupsAreThoseOfAnAxisNextToEachOtherOnTheOthers) {
  const std::string three = "x=2,y=2,z=2 on a.0-7";
  for (const auto& [text, groups] : std::vector<std::pair<std::string, Groups>>{
           {"[8, 8]: [x, y] -> [-, y]", {{0, 4}, {1, 5}, {2, 6}, {3, 7}}},
           {"[8, 8]: [x*y, -] -> [x, -]", {{0, 2}, {1, 3}, {4, 6}, {5, 7}}},
           {"[8, 8]: [x*y, -] -> [-, -]", {{0, 2, 4, 6}, {1, 3, 5, 7}}},
           {"[8, 8]: [z*x, -] -> [-, -]", {{0, 4, 1, 5}, {2, 6, 3, 7}}},
           {"[8, 8]: [z*y*x, -] -> [-, -]", {{0, 4, 2, 6, 1, 5, 3, 7}}},
           {"[8, 8]: [x*y, -] -> [y, -]", {}},
           {"[8, 8]: [-, x] -> [-, -]", {}}}) {
    EXPECT_EQ(GroupsIn({text, three}), groups) << text;
  }
  // Two of four devices, of which the others have nothing.
  EXPECT_EQ(GroupsIn({"[8, 6]: {[0:4, 0:6]; ; [4:8, 0:6]; } -> {[0:8, 0:6]; ; [0:8, 0:6]; }"}),
            (Groups{{0, 2}}));
  // One that has all already.
  EXPECT_EQ(GroupsIn({"[8, 6]: {[0:4, 0:6]; [0:8, 0:6]; [4:8, 0:6]; } -> "
                      "{[0:8, 0:6]; [0:8, 0:6]; [0:8, 0:6]; }"}),
            Groups());
}

TEST(StepCollective, PiecesOfEveryDeviceAndOfOneLengthAreGathered) {
  EXPECT_EQ(FoundIn({"[8, 6]: [x, -] -> [-, -]"}), StepCollective::kAllGather);
  EXPECT_EQ(FoundIn({"[1, 8]: [-, x] -> [-, -]"}), StepCollective::kAllGather);
  const std::string two_axes = "x=2,y=2 on a.0-3";
  for (const StepCase& of : std::vector<StepCase>{{"[8, 6]: [-, -] -> [-, -]"},
                                                  {"[8, 6]: [-, -] -> [x, -]"},
                                                  {"[8, 8]: [-, x] -> [-, -]"},
                                                  {"[8, 8]: [x, -] -> [-, x]"},
                                                  {"[7, 6]: [x, -] chunk -> [-, -]"},
                                                  {"[8, 8]: [x, y] -> [x, -]", two_axes},
                                                  {"[8, 6]: [-, -] -> [-, -]", "on a.0"}}) {
    EXPECT_EQ(FoundIn(of), std::nullopt) << of.text;
  }
}

TEST(StepCollective, SumsGoToAllOrEachPieceToItsRank) {
  const Reduction sum;
  const auto found = [&](const std::string& destination, const Reduction& reduction,
                         DataType type = DataType::kF32) {
    return FoundIn({.text = absl::StrCat("[4, 8, 6]: [x, -, -] -> ", destination),
                    .summands = 1,
                    .type = type},
                   reduction);
  };
  EXPECT_EQ(found("[-, -, -]", sum), StepCollective::kAllReduce);
  EXPECT_EQ(found("[-, x, -]", sum), StepCollective::kReduceScatter);
  // In the order of pieces, whatever the order of summands.
  EXPECT_EQ(GroupsIn({.text = "[4, 8, 6]: [x, -, -] -> {[0:4, 2:4, 0:6]; [0:4, 0:2, 0:6]; "
                              "[0:4, 4:6, 0:6]; [0:4, 6:8, 0:6]}",
                      .summands = 1},
                     sum),
            (Groups{{1, 0, 2, 3}}));
  // Two devices have the same summand, or get the same piece.
  EXPECT_EQ(FoundIn({.text = "[4, 8, 6]: {[0:1, 0:8, 0:6]; [0:1, 0:8, 0:6]; [1:2, 0:8, 0:6]; "
                             "[2:3, 0:8, 0:6]} -> [-, -, -]",
                     .summands = 1},
                    sum),
            std::nullopt);
  EXPECT_EQ(found("{[0:4, 0:2, 0:6]; [0:4, 0:2, 0:6]; [0:4, 4:6, 0:6]; [0:4, 6:8, 0:6]}", sum),
            std::nullopt);
  EXPECT_EQ(found("[-, -, -]", {.divisor = 4}), StepCollective::kAllReduce);
  EXPECT_EQ(found("[-, -, -]", {.divisor = 2}), std::nullopt);
  EXPECT_EQ(found("[-, -, -]", {.divisor = 4}, DataType::kI32), std::nullopt);
  EXPECT_EQ(found("[-, -, -]", sum, DataType::kI32), StepCollective::kAllReduce);
  EXPECT_EQ(found("[-, -, -]", sum, DataType::kI16), std::nullopt);
  EXPECT_EQ(found("[-, -, -]", {.kind = ReductionKind::kMax}), std::nullopt);
}

// Summands of two axes, of which one is reduced at a time; and of one, beside another axis.
TEST(StepCollective, SumsAreOfTheGroupsThatHaveSummandsOfTheSame) {
  const auto groups = [&](const std::string& text, int32_t summands,
                          const Reduction& reduction = {}) {
    return GroupsIn({text, "x=2,y=2 on a.0-3", summands}, reduction);
  };
  EXPECT_EQ(groups("[2, 2, 8]: [x, y, -] -> [x, -, y]", 2), (Groups{{0, 1}, {2, 3}}));
  EXPECT_EQ(groups("[2, 2, 8]: [x, y, -] -> [-, y, x]", 2), (Groups{{0, 2}, {1, 3}}));
  EXPECT_EQ(groups("[2, 8]: [x, y] -> [-, y]", 1), (Groups{{0, 2}, {1, 3}}));
  EXPECT_EQ(groups("[2, 8]: [x, y] -> [-, y]", 1, {.divisor = 2}), (Groups{{0, 2}, {1, 3}}));
  EXPECT_EQ(groups("[2, 8]: [x, y] -> [-, y]", 1, {.divisor = 4}), Groups());
  EXPECT_EQ(groups("[2, 8]: [x, -] -> [-, y]", 1), Groups());  // both of a group get one piece
}

}  // namespace
}  // namespace crossmesh

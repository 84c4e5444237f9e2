#include "common/plan/chunk_cuts.h"

#include "common/base/check.h"
#include "common/plan/plan.h"
#include "common/plan/testing/for_each_seed.h"
#include "common/plan/testing/tables.h"
#include "common/testing/status_matchers.h"

#include <cstdint>
#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::ElementsAre;

constexpr int64_t kKibi = 1024;
constexpr int64_t kChunk = 1024 * kKibi;

// One class of tensors of these sizes, from one slot to another.
TensorTable TableOfTensors(const std::vector<int64_t>& bytes) {
  std::vector<TensorText> tensors;
  for (const int64_t size : bytes) {
    tensors.push_back({.shape = absl::StrCat("[", size, "]"),
                       .source_mesh = "x=1 on a.0",
                       .source = "[-]",
                       .destination_mesh = "x=1 on b.0",
                       .destination = "[-]",
                       .type = DataType::kU8});
  }
  return TableOf(tensors);
}

std::vector<int64_t> CutsOf(const std::vector<int64_t>& tensors, int64_t begin, int64_t end,
                            int64_t chunk_bytes = kChunk) {
  const TensorTable table = TableOfTensors(tensors);
  const absl::StatusOr<Slicing> slicing = Slicing::Create(table);
  CHECK_OK(slicing.status());
  CHECK_EQ(slicing->classes().size(), 1u);
  std::vector<int64_t> cuts;
  ChunkCuts(table, *slicing, 0, chunk_bytes).AppendCuts(begin, end, cuts);
  return cuts;
}

TEST(ChunkCutsTest, OneTensorIsCutIntoTheFewestEqualChunks) {
  EXPECT_THAT(CutsOf({2 * kChunk}, 0, 2 * kChunk), ElementsAre(0, kChunk));
  // Three chunks of 853 1/3 KiB, rounded up to 4 KiB.
  EXPECT_THAT(CutsOf({5 * kChunk / 2}, 0, 5 * kChunk / 2),
              ElementsAre(0, 856 * kKibi, 1712 * kKibi));
  EXPECT_THAT(CutsOf({100}, 0, 100), ElementsAre(0));
}

TEST(ChunkCutsTest, OneByteMoreThanAChunkIsCut) {
  // Two chunks of 512.0005 KiB, rounded up to 4 KiB.
  EXPECT_THAT(CutsOf({kChunk + 1}, 0, kChunk + 1), ElementsAre(0, 516 * kKibi));
  EXPECT_THAT(CutsOf({4 * kKibi + 1}, 0, 4 * kKibi + 1, 4 * kKibi), ElementsAre(0, 4 * kKibi));
}

TEST(ChunkCutsTest, LargeTensorsStandAlone) {
  const int64_t quarter = kChunk / 4;
  EXPECT_THAT(CutsOf({quarter, quarter, quarter}, 0, 3 * quarter),
              ElementsAre(0, quarter, 2 * quarter));
  EXPECT_THAT(CutsOf({100, quarter}, 0, 100 + quarter), ElementsAre(0, 100));
  EXPECT_THAT(CutsOf({100, quarter - 1}, 0, 99 + quarter), ElementsAre(0));
  EXPECT_THAT(CutsOf({100, quarter}, 0, 100 + quarter, kChunk + 1), ElementsAre(0));
}

// Of a class, what has no bytes in it moves nothing: a tensor for another device, and one that
// stays.
TEST(ChunkCutsTest, OnlyTensorsOfTheClassAreThere) {
  const auto to = [](const char* device, int64_t bytes) {
    return TensorOf(absl::StrCat("[", bytes, "]: x=1 on a.0 [-] -> x=1 on ", device, " [-]"),
                    DataType::kU8);
  };
  TensorTable::Spec spec = TableSpecOf({to("c.0", kChunk), to("b.0", 100), to("b.0", kChunk)});
  spec.group_of_tensor = {0, -1, 1, 0, 2};
  ASSERT_OK_AND_ASSIGN(const TensorTable table, TensorTable::Create(std::move(spec)));
  ASSERT_OK_AND_ASSIGN(const Slicing slicing, Slicing::Create(table));
  ASSERT_EQ(slicing.classes()[1].bytes, 100 + kChunk);
  std::vector<int64_t> cuts;
  ChunkCuts(table, slicing, 1, kChunk).AppendCuts(0, 100 + kChunk, cuts);
  EXPECT_THAT(cuts, ElementsAre(0, 100));
}

TEST(ChunkCutsTest, SmallTensorsShareChunks) {
  EXPECT_THAT(CutsOf({100, 50, 200}, 0, 350), ElementsAre(0));
  // Those before, between and after large ones.
  EXPECT_THAT(CutsOf({100, 50, kChunk, 60, kChunk, 70}, 0, 2 * kChunk + 280),
              ElementsAre(0, 150, 150 + kChunk, 210 + kChunk, 210 + 2 * kChunk));
}

TEST(ChunkCutsTest, RelaysOfAClassAreCutOnTheirOwn) {
  const std::vector<int64_t> tensors = {100, kChunk, 200};
  EXPECT_THAT(CutsOf(tensors, 60, kChunk / 2), ElementsAre(60, 100));
  EXPECT_THAT(CutsOf(tensors, kChunk / 2, kChunk + 300), ElementsAre(kChunk / 2, kChunk + 100));
  EXPECT_THAT(CutsOf(tensors, 100, 100 + kChunk), ElementsAre(100));
  EXPECT_THAT(CutsOf(tensors, kChunk + 150, kChunk + 160), ElementsAre(kChunk + 150));
  // Of a neighbour a single byte.
  EXPECT_THAT(CutsOf(tensors, 100, kChunk + 101), ElementsAre(100, kChunk + 100));
  EXPECT_THAT(CutsOf(tensors, 99, 100 + kChunk), ElementsAre(99, 100));
}

// By definition, on random tables: chunks cover the relay, none is too large, and none holds parts
// of two tensors one of which is large.
TEST(ChunkCutsTest, EveryChunkKeepsTheRule) {
  ForEachSeed(300, [&](RandomSource& random) {
    std::vector<int64_t> tensors;
    int64_t bytes = 0;
    for (int64_t count = random.Between(1, 8); count > 0; --count) {
      tensors.push_back(random.Between(1, random.OneIn(2) ? 3 * kChunk : kChunk / 3));
      bytes += tensors.back();
    }
    const int64_t begin = random.Between(0, bytes - 1);
    const int64_t end = random.Between(begin + 1, bytes);
    std::vector<int64_t> cuts = CutsOf(tensors, begin, end);
    ASSERT_EQ(cuts.front(), begin);
    cuts.push_back(end);
    for (size_t i = 0; i + 1 < cuts.size(); ++i) {
      ASSERT_LT(cuts[i], cuts[i + 1]);
      ASSERT_LE(cuts[i + 1] - cuts[i], kChunk);
      int64_t tensor_begin = 0;
      for (const int64_t size : tensors) {
        const bool touched = tensor_begin < cuts[i + 1] && cuts[i] < tensor_begin + size;
        if (touched && 4 * size >= kChunk) {
          ASSERT_GE(cuts[i], tensor_begin);
          ASSERT_LE(cuts[i + 1], tensor_begin + size);
        }
        tensor_begin += size;
      }
    }
  });
}

}  // namespace
}  // namespace crossmesh

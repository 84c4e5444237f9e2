#include "worker/gpu/executor/driver_copies.h"

#include "common/plan/testing/random_source.h"
#include "worker/gpu/kernels/kernel_launches.h"

#include <cstdint>
#include <optional>
#include <vector>

#include <absl/strings/str_cat.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::ElementsAre;

constexpr int64_t kMebibyte = int64_t{1} << 20;
constexpr uint64_t kFrom = uint64_t{1} << 40;
constexpr uint64_t kTo = uint64_t{1} << 41;

// `rows` pieces at one distance.
KernelBoxList Rows(uint64_t address, int64_t rows, int64_t row_bytes, int64_t pitch_bytes) {
  KernelBoxList list;
  for (int64_t row = 0; row < rows; ++row) list.Append(address + row * pitch_bytes, row_bytes);
  return list;
}

TEST(DriverCopiesTest, OneRowIsOneCopy) {
  const KernelBoxList from = Rows(kFrom, 1, 64 * kMebibyte, 0);
  const KernelBoxList to = Rows(kTo, 1, 64 * kMebibyte, 0);
  const auto copies =
      DriverCopiesOf(from.boxes(), to.boxes(), {.begin = kMebibyte, .end = 33 * kMebibyte});
  ASSERT_TRUE(copies.has_value());
  ASSERT_EQ(copies->size(), 1U);
  EXPECT_EQ(copies->front().from, kFrom + kMebibyte);
  EXPECT_EQ(copies->front().to, kTo + kMebibyte);
  EXPECT_EQ(copies->front().row_bytes, 32 * kMebibyte);
  EXPECT_EQ(copies->front().rows, 1);
}

TEST(DriverCopiesTest, LongRowsOfOneDistanceAreOneCopy) {
  const KernelBoxList rows = Rows(kFrom, 3072, 16384, 65536);
  const KernelBoxList whole = Rows(kTo, 1, 48 * kMebibyte, 0);
  const auto gathered = DriverCopiesOf(rows.boxes(), whole.boxes(), {.end = 48 * kMebibyte});
  ASSERT_TRUE(gathered.has_value());
  EXPECT_THAT(*gathered, ElementsAre(DeviceCopy{.from = kFrom,
                                                .to = kTo,
                                                .row_bytes = 16384,
                                                .rows = 3072,
                                                .from_pitch_bytes = 65536,
                                                .to_pitch_bytes = 16384}));
  const auto scattered = DriverCopiesOf(whole.boxes(), rows.boxes(), {.end = 48 * kMebibyte});
  ASSERT_TRUE(scattered.has_value());
  EXPECT_THAT(*scattered, ElementsAre(DeviceCopy{.from = kTo,
                                                 .to = kFrom,
                                                 .row_bytes = 16384,
                                                 .rows = 3072,
                                                 .from_pitch_bytes = 16384,
                                                 .to_pitch_bytes = 65536}));
}

TEST(DriverCopiesTest, ARangeThatCutsRowsIsACopyForEachOfItsEnds) {
  const KernelBoxList rows = Rows(kFrom, 3072, 16384, 65536);
  const KernelBoxList whole = Rows(kTo, 1, 48 * kMebibyte, 0);
  const auto copies =
      DriverCopiesOf(rows.boxes(), whole.boxes(), {.begin = 100, .end = 40 * kMebibyte + 5});
  ASSERT_TRUE(copies.has_value());
  ASSERT_EQ(copies->size(), 3U);
  EXPECT_EQ((*copies)[0].bytes(), 16384 - 100);
  EXPECT_EQ((*copies)[1].rows, 2559);
  EXPECT_EQ((*copies)[2].bytes(), 5);
}

TEST(DriverCopiesTest, ShortRowsManyPiecesAndFewBytesAreAKernels) {
  const KernelBoxList whole = Rows(kTo, 1, 64 * kMebibyte, 0);
  const KernelBoxList short_rows = Rows(kFrom, 4 << 10, 8192, 16384);
  EXPECT_EQ(DriverCopiesOf(short_rows.boxes(), whole.boxes(), {.end = 32 * kMebibyte}),
            std::nullopt);
  KernelBoxList pieces;
  for (uint64_t i = 0; i < 32; ++i) pieces.Append(kFrom + (i * i << 24), kMebibyte);
  EXPECT_EQ(DriverCopiesOf(pieces.boxes(), whole.boxes(), {.end = 32 * kMebibyte}), std::nullopt);
  EXPECT_EQ(DriverCopiesOf(whole.boxes(), whole.boxes(), {.end = 8 * kMebibyte - 1}), std::nullopt);
}

// Rows in another order than that of their addresses, or on each other, are none of the driver's.
TEST(DriverCopiesTest, OnlyDistancesThatTheDriverTakesAreOneCopy) {
  const KernelBoxList whole = Rows(kTo, 1, 1000, 0);
  for (const int64_t pitch_bytes : {int64_t{-100}, int64_t{50}, int64_t{1} << 31}) {
    const KernelBoxList rows = Rows(kFrom, 10, 100, pitch_bytes);
    const auto copies = DriverCopiesOf(rows.boxes(), whole.boxes(), {.end = 1000},
                                       {.bytes_of_copy_min = 1, .row_bytes_min = 1});
    ASSERT_TRUE(copies.has_value());
    EXPECT_EQ(copies->size(), 10U) << pitch_bytes;
  }
}

// Address of each byte of a range, by its place in it.
std::vector<uint64_t> AddressesOf(const KernelBoxList& list, Interval range) {
  std::vector<uint64_t> addresses;
  for (const KernelBox& box : list.boxes()) {
    for (int64_t at = 0; at < box.rows * box.row_bytes; ++at) {
      addresses.push_back(box.address + at / box.row_bytes * box.pitch_bytes + at % box.row_bytes);
    }
  }
  return {addresses.begin() + range.begin, addresses.begin() + range.end};
}

KernelBoxList RandomList(RandomSource& random, uint64_t address, int64_t bytes) {
  KernelBoxList list;
  int64_t row_bytes = random.Between(1, 8);
  int64_t gap_bytes = random.Below(4);
  while (list.packed_bytes() < bytes) {
    if (random.OneIn(6)) row_bytes = random.Between(1, 8);
    if (random.OneIn(6)) gap_bytes = random.Below(4);
    list.Append(address, row_bytes);
    address += row_bytes + gap_bytes;
  }
  return list;
}

TEST(DriverCopiesTest, CopiesAreOfTheBytesOfTheRangeInOrder) {
  for (uint64_t seed = 0; seed < 500; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    RandomSource random(seed);
    const int64_t bytes = random.Between(1, 200);
    const KernelBoxList from = RandomList(random, kFrom, bytes);
    const KernelBoxList to = RandomList(random, kTo, bytes);
    const int64_t begin = random.Below(bytes);
    const Interval range = {.begin = begin, .end = random.Between(begin + 1, bytes)};
    const auto copies = DriverCopiesOf(from.boxes(), to.boxes(), range,
                                       {.bytes_of_copy_min = 1, .row_bytes_min = 1});
    ASSERT_TRUE(copies.has_value());
    std::vector<uint64_t> read;
    std::vector<uint64_t> written;
    for (const DeviceCopy& copy : *copies) {
      for (int64_t at = 0; at < copy.bytes(); ++at) {
        const int64_t row = at / copy.row_bytes;
        read.push_back(copy.from + row * copy.from_pitch_bytes + at % copy.row_bytes);
        written.push_back(copy.to + row * copy.to_pitch_bytes + at % copy.row_bytes);
      }
    }
    ASSERT_EQ(read, AddressesOf(from, range));
    ASSERT_EQ(written, AddressesOf(to, range));
  }
}

}  // namespace
}  // namespace crossmesh

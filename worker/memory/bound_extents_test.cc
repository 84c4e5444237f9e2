#include "worker/memory/bound_extents.h"

#include "common/testing/status_matchers.h"

#include <memory>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace crossmesh {
namespace {

std::shared_ptr<Arena> Lent(const std::string& ipc_handle = "") {
  return *Arena::Reserve(
      "test", ByteCount(4096),
      std::make_shared<DeviceMemory>("GPU-1", DeviceMemory::Kind::kLent, ipc_handle));
}

TEST(BoundExtentsTest, OverlapIsAByteOfOneAllocation) {
  const auto a = Lent();
  const auto b = Lent();
  const auto of = [](const std::shared_ptr<Arena>& allocation, int64_t offset, int64_t bytes) {
    const BoundPiece piece = {
        .bytes = bytes, .allocation = allocation, .allocation_offset = offset};
    return BoundExtents::OfPieces({&piece, 1});
  };
  EXPECT_TRUE(of(a, 0, 100).Overlaps(of(a, 99, 1)));
  EXPECT_FALSE(of(a, 0, 100).Overlaps(of(a, 100, 1)));
  EXPECT_FALSE(of(a, 0, 100).Overlaps(of(b, 0, 100)));
  EXPECT_TRUE(of(a, 7, 1).Overlaps(BoundExtents::OfLoan(*a)));
  EXPECT_FALSE(of(a, 7, 1).Overlaps(BoundExtents()));
}

TEST(BoundExtentsTest, LoansByOneHandleAreOneAllocation) {
  EXPECT_TRUE(BoundExtents::OfLoan(*Lent("h")).Overlaps(BoundExtents::OfLoan(*Lent("h"))));
  EXPECT_FALSE(BoundExtents::OfLoan(*Lent("h")).Overlaps(BoundExtents::OfLoan(*Lent("i"))));
}

TEST(BoundExtentsTest, IsWhatComparingEachByteFinds) {
  std::mt19937_64 random(1);
  const std::vector<std::shared_ptr<Arena>> allocations = {Lent(), Lent()};
  const auto make = [&](std::set<std::pair<size_t, int64_t>>& bytes) {
    std::vector<BoundPiece> pieces;
    for (uint64_t i = random() % 6; i > 0; --i) {
      const size_t allocation = random() % 2;
      const auto begin = static_cast<int64_t>(random() % 60);
      const auto size = static_cast<int64_t>(random() % 6 + 1);
      pieces.push_back(
          {.bytes = size, .allocation = allocations[allocation], .allocation_offset = begin});
      for (int64_t at = begin; at < begin + size; ++at) bytes.emplace(allocation, at);
    }
    return BoundExtents::OfPieces(pieces);
  };
  for (int i = 0; i < 2000; ++i) {
    std::set<std::pair<size_t, int64_t>> bytes;
    std::set<std::pair<size_t, int64_t>> other_bytes;
    const BoundExtents extents = make(bytes);
    const BoundExtents other = make(other_bytes);
    bool is_shared = false;
    for (const auto& byte : bytes) is_shared = is_shared || other_bytes.contains(byte);
    EXPECT_EQ(extents.Overlaps(other), is_shared);
    EXPECT_EQ(other.Overlaps(extents), is_shared);
  }
}

}  // namespace
}  // namespace crossmesh

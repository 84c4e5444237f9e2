#include "worker/transport/socket/lent_regions.h"

#include "worker/transport/testing/sealed_memory.h"

#include <memory>
#include <vector>

#include <gtest/gtest.h>

namespace crossmesh {
namespace {

class LentRegionsTest : public testing::Test {
 protected:
  LentRegionsTest() {
    regions_.Add(first_->lent());
    regions_.Add(second_->lent());
  }
  static iovec Piece(const SealedMemory& memory, size_t offset, size_t bytes) {
    return PieceOf(std::span(memory.bytes().data() + offset, bytes));
  }

  const std::unique_ptr<SealedMemory> first_ = SealedMemory::Create(10000);
  const std::unique_ptr<SealedMemory> second_ = SealedMemory::Create(5000);
  LentRegions regions_;
};

TEST_F(LentRegionsTest, PiecesAreFoundInTheirRegion) {
  const std::vector<iovec> pieces = {Piece(*first_, 9000, 1000), Piece(*first_, 0, 1)};
  const LentRegion* region = regions_.Find(pieces);
  ASSERT_NE(region, nullptr);
  EXPECT_EQ(region->bytes.data(), first_->bytes().data());
  EXPECT_EQ(region->file.bytes, 10000);
  EXPECT_EQ(region->file.inode, first_->inode());
  EXPECT_EQ(region->file.fd, first_->fd());
}

TEST_F(LentRegionsTest, PiecesInTwoRegionsAreInNone) {
  const std::vector<iovec> pieces = {Piece(*first_, 0, 1), Piece(*second_, 0, 1)};
  EXPECT_EQ(regions_.Find(pieces), nullptr);
  // Where the second lies above the region, and where it lies below.
  const std::vector<iovec> turned = {pieces[1], pieces[0]};
  EXPECT_EQ(regions_.Find(turned), nullptr);
}

TEST_F(LentRegionsTest, PiecesThatLeaveTheirRegionAreInNone) {
  const std::vector<iovec> pieces = {Piece(*second_, 4999, 2)};
  EXPECT_EQ(regions_.Find(pieces), nullptr);
  std::vector<std::byte> elsewhere(10);
  const std::vector<iovec> others = {PieceOf(elsewhere)};
  EXPECT_EQ(regions_.Find(others), nullptr);
}

TEST_F(LentRegionsTest, WhatWasRemovedIsNotFound) {
  const std::vector<iovec> pieces = {Piece(*first_, 0, 1)};
  const uint64_t id = regions_.Find(pieces)->id;
  EXPECT_EQ(regions_.Remove(first_->bytes()), id);
  EXPECT_EQ(regions_.Find(pieces), nullptr);
  EXPECT_EQ(regions_.Remove(first_->bytes()), std::nullopt);
  regions_.Add(first_->lent());
  EXPECT_NE(regions_.Find(pieces)->id, id);
}

TEST_F(LentRegionsTest, OneInTheMiddleOfMemoryIsFoundAndRemovedAlone) {
  const std::unique_ptr<SealedMemory> memory = SealedMemory::Create(15000);
  const std::span<std::byte> all = memory->bytes();
  LentRegions regions;
  for (const size_t place : {2U, 0U, 1U}) {
    regions.Add({.bytes = all.subspan(5000 * place, 5000), .fd = memory->fd()});
  }
  const auto id_at = [&](size_t offset, size_t bytes) {
    const std::vector<iovec> piece = {Piece(*memory, offset, bytes)};
    const LentRegion* const found = regions.Find(piece);
    return found == nullptr ? 0 : found->id;
  };
  EXPECT_EQ(id_at(0, 5000), 2);
  EXPECT_EQ(id_at(5000, 5000), 3);
  EXPECT_EQ(id_at(10000, 5000), 1);
  EXPECT_EQ(id_at(4999, 2), 0);
  EXPECT_EQ(regions.Remove(all.subspan(5000, 5000)), 3);
  EXPECT_EQ(id_at(5000, 1), 0);
  EXPECT_EQ(id_at(9999, 1), 0);
  EXPECT_EQ(id_at(4999, 1), 2);
  EXPECT_EQ(id_at(10000, 1), 1);
}

}  // namespace
}  // namespace crossmesh

#include "worker/executor/leaf_checksum.h"

#include "common/plan/plan.h"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <gtest/gtest.h>
#include <xxhash.h>

namespace crossmesh {
namespace {

TEST(LeafChecksum, IsXxh3WhateverTheProcessor) {
  std::vector<std::byte> bytes(70'000);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 31);
  for (const size_t size : {0, 1, 16, 17, 128, 240, 241, 1024, 65'536, 70'000}) {
    EXPECT_EQ(HashLeaf(std::span(bytes).first(size)), XXH3_64bits(bytes.data(), size)) << size;
  }
}

TEST(LeafChecksum, AChunkIsHashedLeafByLeaf) {
  std::vector<std::byte> chunk(2 * Plan::kLeafBytes + 100);
  for (size_t i = 0; i < chunk.size(); ++i) chunk[i] = static_cast<std::byte>(i / 1000);
  std::vector<uint64_t> hashes(3);
  HashLeaves(chunk, hashes);
  EXPECT_EQ(hashes[0], HashLeaf(std::span(chunk).first(Plan::kLeafBytes)));
  EXPECT_EQ(hashes[1], HashLeaf(std::span(chunk).subspan(Plan::kLeafBytes, Plan::kLeafBytes)));
  EXPECT_EQ(hashes[2], HashLeaf(std::span(chunk).last(100)));
}

TEST(LeafChecksum, OfARelayIsTheHashOfItsLeafHashes) {
  const std::vector<uint64_t> leaves = {1, 2, 3};
  EXPECT_EQ(ChecksumOfLeaves(leaves), XXH3_64bits(leaves.data(), 24));
  EXPECT_NE(ChecksumOfLeaves(leaves), ChecksumOfLeaves(std::vector<uint64_t>{2, 1, 3}));
}

}  // namespace
}  // namespace crossmesh

#include "worker/transport/pieces.h"

#include <algorithm>
#include <cstddef>
#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace crossmesh {
namespace {

// `bytes` in pieces of random sizes.
std::vector<iovec> Cut(std::vector<std::byte>& bytes, std::mt19937_64& random) {
  std::vector<iovec> pieces;
  for (size_t at = 0; at < bytes.size();) {
    const size_t size = std::min<size_t>(1 + random() % 9, bytes.size() - at);
    pieces.push_back(PieceOf(std::span(bytes).subspan(at, size)));
    at += size;
  }
  return pieces;
}

TEST(PiecesTest, CopiesBetweenAnyTwoCuts) {
  std::mt19937_64 random(1);
  for (size_t size = 0; size < 60; ++size) {
    std::vector<std::byte> from(size);
    for (std::byte& byte : from) byte = static_cast<std::byte>(random());
    std::vector<std::byte> into(size);
    const std::vector<iovec> pieces = Cut(from, random);
    EXPECT_EQ(BytesOf(pieces), size);
    CopyPieces(pieces, Cut(into, random));
    EXPECT_EQ(into, from);
  }
}

}  // namespace
}  // namespace crossmesh

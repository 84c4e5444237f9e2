#include "common/base/digest.h"

#include <absl/container/flat_hash_set.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

TEST(DigestTest, IsXxh3) {
  // The published value for empty input and seed 0.
  EXPECT_EQ(Digest::Of("").ToString(), "99aa06d3014798d86001c324468d497f");
}

TEST(DigestTest, DependsOnEveryByte) {
  absl::flat_hash_set<Digest> digests;
  std::string text(300, 'a');
  digests.insert(Digest::Of(text));
  for (char& c : text) {
    c = 'b';
    digests.insert(Digest::Of(text));
    c = 'a';
  }
  EXPECT_EQ(digests.size(), 301u);
}

TEST(DigestTest, TextFormIsRead) {
  const Digest digest = {.high = 0x0123456789abcdef, .low = 0x7};
  EXPECT_EQ(digest.ToString(), "0123456789abcdef0000000000000007");
  EXPECT_EQ(Digest::Parse(digest.ToString()), digest);
}

TEST(DigestTest, OtherTextIsRefused) {
  EXPECT_EQ(Digest::Parse(""), std::nullopt);
  EXPECT_EQ(Digest::Parse("0123456789abcdef000000000000007"), std::nullopt);
  EXPECT_EQ(Digest::Parse("0123456789abcdef00000000000000077"), std::nullopt);
  EXPECT_EQ(Digest::Parse("0123456789ABCDEF0000000000000007"), std::nullopt);
  EXPECT_EQ(Digest::Parse("0123456789abcdeg0000000000000007"), std::nullopt);
}

TEST(DigestTest, HighHalfOrdersFirst) {
  EXPECT_LT((Digest{.high = 1, .low = 9}), (Digest{.high = 2, .low = 0}));
}

}  // namespace
}  // namespace crossmesh

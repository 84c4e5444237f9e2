#include "common/base/digest_builder.h"

#include <algorithm>
#include <string>

#include <gtest/gtest.h>

namespace crossmesh {
namespace {

TEST(DigestBuilderTest, GivesTheDigestOfTheWholeHoweverItIsDivided) {
  std::string whole;
  for (int i = 0; i < 100'000; ++i) whole.push_back(static_cast<char>(i * 7 + i / 251));
  const auto bytes = std::as_bytes(std::span(whole.data(), whole.size()));
  for (const size_t piece : {1, 8, 1000, 4096, 5000, 100'000}) {
    DigestBuilder builder;
    for (size_t at = 0; at < bytes.size(); at += piece) {
      builder.AddBytes(bytes.subspan(at, std::min(piece, bytes.size() - at)));
    }
    EXPECT_EQ(builder.Finish(), Digest::Of(bytes)) << piece;
  }
}

TEST(DigestBuilderTest, IntegersAreEightBytesEach) {
  std::string bytes;
  DigestBuilder builder;
  for (int64_t i = -700; i < 700; ++i) {
    builder.AddInt(i);
    bytes.append(reinterpret_cast<const char*>(&i), sizeof(i));
  }
  EXPECT_EQ(builder.Finish(), Digest::Of(bytes));
}

TEST(DigestBuilderTest, ManyIntegersAreAddedOneAfterTheOther) {
  enum class Side : uint8_t { kLeft, kRight };
  DigestBuilder one_by_one;
  for (const int64_t value : {-3, 1, 1}) one_by_one.AddInt(value);
  DigestBuilder at_once;
  at_once.AddInts(int32_t{-3}, Side::kRight, true);
  EXPECT_EQ(at_once.Finish(), one_by_one.Finish());
}

TEST(DigestBuilderTest, NeighbouringTextsDoNotRunIntoEachOther) {
  DigestBuilder one;
  one.AddText("ab");
  one.AddText("c");
  DigestBuilder other;
  other.AddText("a");
  other.AddText("bc");
  EXPECT_NE(one.Finish(), other.Finish());
}

TEST(DigestBuilderTest, NothingAddedIsTheDigestOfNothing) {
  DigestBuilder builder;
  EXPECT_EQ(builder.Finish(), Digest::Of(""));
}

}  // namespace
}  // namespace crossmesh

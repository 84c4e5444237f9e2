#include "common/base/strong_int.h"

#include "common/base/byte_count.h"

#include <sstream>
#include <type_traits>

#include <absl/container/flat_hash_set.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using Rank = StrongInt<struct RankTag>;
using Index = StrongInt<struct IndexTag, int32_t>;

template <typename A, typename B>
concept Comparable = requires(A a, B b) { a == b; };
template <typename A, typename B>
concept Addable = requires(A a, B b) { a + b; };

TEST(StrongIntTest, TypesDoNotMix) {
  static_assert(!std::is_convertible_v<int64_t, Rank>);
  static_assert(!std::is_convertible_v<Rank, int64_t>);
  static_assert(!std::is_convertible_v<Index, Rank>);
  static_assert(!Comparable<Rank, Index>);
  static_assert(!Comparable<Rank, int64_t>);
  static_assert(!Addable<Rank, Rank>);
  static_assert(!Addable<ByteCount, int64_t>);
  static_assert(sizeof(Index) == sizeof(int32_t));
}

TEST(StrongIntTest, ComparesAndSteps) {
  int sum = 0;
  for (Index i(0); i < Index(4); ++i) sum += i.value();
  EXPECT_EQ(sum, 6);
  EXPECT_EQ(Rank(), Rank(0));
  EXPECT_NE(Rank(1), Rank(2));
  EXPECT_GE(Rank(2), Rank(2));
}

TEST(StrongIntTest, HashesAndPrints) {
  EXPECT_EQ((absl::flat_hash_set<Rank>{Rank(1), Rank(2), Rank(1)}).size(), 2u);
  EXPECT_TRUE((absl::flat_hash_set<ByteCount>{ByteCount(1)}).contains(ByteCount(1)));
  std::ostringstream out;
  out << Rank(7) << " " << ByteCount(8);
  EXPECT_EQ(out.str(), "7 8");
}

TEST(StrongCountTest, HasTheArithmeticOfAQuantity) {
  ByteCount bytes(10);
  bytes += ByteCount(5);
  bytes -= ByteCount(3);
  EXPECT_EQ(bytes, ByteCount(12));
  EXPECT_EQ(bytes + ByteCount(1), ByteCount(13));
  EXPECT_EQ(bytes - ByteCount(1), ByteCount(11));
  EXPECT_EQ(bytes * 2, ByteCount(24));
  EXPECT_EQ(2 * bytes, ByteCount(24));
  EXPECT_EQ(bytes / 5, ByteCount(2));
  EXPECT_EQ(bytes / ByteCount(5), 2);
  EXPECT_EQ(bytes % ByteCount(5), ByteCount(2));
}

}  // namespace
}  // namespace crossmesh

#include "controller/catalog/request_table.h"

#include <algorithm>
#include <cstdint>

#include <absl/strings/str_cat.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

RequestTable::Request Request(int number) {
  return {.id = Digest::Of(absl::StrCat("request-", number)),
          .content = Digest::Of(absl::StrCat("content ", number)),
          .job = static_cast<uint64_t>(number),
          .since = absl::Seconds(number)};
}

TEST(RequestTableTest, FindsWhatIsInIt) {
  RequestTable table;
  EXPECT_EQ(table.Find(Request(1).id), nullptr);
  EXPECT_EQ(table.Oldest(), nullptr);
  table.Add(Request(1));
  table.Add(Request(2));
  ASSERT_NE(table.Find(Request(2).id), nullptr);
  EXPECT_EQ(table.Find(Request(2).id)->content, Request(2).content);
  EXPECT_EQ(table.Find(Request(2).id)->job, 2);
  EXPECT_EQ(table.Find(Request(3).id), nullptr);
  EXPECT_EQ(table.size(), 2);
}

TEST(RequestTableTest, ForgetsInTheOrderOfAdding) {
  constexpr int kKept = 100;
  RequestTable table;
  for (int i = 1; i <= 10'000; ++i) {
    table.Add(Request(i));
    if (table.size() > kKept) table.ForgetOldest();
    ASSERT_EQ(table.Oldest()->job, std::max(1, i - kKept + 1));
    ASSERT_EQ(table.Find(Request(i - kKept).id), nullptr);
    ASSERT_EQ(table.Find(Request(i).id)->job, i);
    ASSERT_EQ(table.Find(table.Oldest()->id), table.Oldest());
  }
  while (table.size() > 0) table.ForgetOldest();
  EXPECT_EQ(table.Find(Request(10'000).id), nullptr);
  EXPECT_EQ(table.Oldest(), nullptr);
  table.Add(Request(1));
  EXPECT_EQ(table.Find(Request(1).id)->job, 1);
}

TEST(RequestTableTest, GoesOnWhereABlockEnds) {
  RequestTable table;
  for (int i = 1; i <= 4096; ++i) table.Add(Request(i));
  for (int i = 1; i <= 4096; ++i) table.ForgetOldest();
  EXPECT_EQ(table.size(), 0);
  for (int i = 5000; i <= 5001; ++i) table.Add(Request(i));
  EXPECT_EQ(table.Oldest()->job, 5000);
  EXPECT_EQ(table.Find(Request(5001).id)->job, 5001);
}

TEST(RequestTableDeathTest, ARequestIsInItOnce) {
  RequestTable table;
  table.Add(Request(1));
  EXPECT_DEATH(table.Add(Request(1)), "is in the table");
}

}  // namespace
}  // namespace crossmesh

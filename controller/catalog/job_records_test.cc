#include "controller/catalog/job_records.h"

#include "common/base/fake_clock.h"
#include "common/testing/status_matchers.h"
#include "controller/store/memory_store.h"

#include <cstdint>
#include <string>

#include <absl/strings/str_format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using testing::HasSubstr;

class JobRecordsTest : public testing::Test {
 protected:
  static JobRecord Record(int number) {
    return {.number = static_cast<uint64_t>(number),
            .request_id = absl::StrFormat("request-%d", number),
            .content = Digest::Of(absl::StrFormat("content %d", number)),
            .bytes = "began"};
  }
  // Of FindRequest.
  using Found = std::optional<std::string>;
  static auto IsNew() { return IsOkAndHolds(Found()); }
  auto Began(uint64_t number) const { return IsOkAndHolds(Found(records_.IdOf(number))); }
  int64_t Objects() { return static_cast<int64_t>(store_.List("", "", 1'000'000)->size()); }

  MemoryStore store_;
  FakeClock clock_;
  JobRecords records_{store_,
                      /*epoch=*/1,
                      clock_,
                      {.noun = "operation", .id_prefix = "op-", .finished_max = 10}};
};

TEST_F(JobRecordsTest, AnIdHasAForm) {
  EXPECT_TRUE(records_.IsId(records_.IdOf(0)));
  EXPECT_TRUE(records_.IsId(records_.IdOf(UINT64_MAX)));
  for (const char* text : {"", "op-", "op-1", "pr-0000000000000000", "op-000000000000000g",
                           "op-00000000000000000", "0000000000000000"}) {
    EXPECT_FALSE(records_.IsId(text)) << text;
  }
}

TEST_F(JobRecordsTest, ARequestIsNewUntilItsOperationBegan) {
  const JobRecord record = Record(1);
  EXPECT_THAT(records_.FindRequest(record.request_id, record.content), IsNew());
  ASSERT_OK(records_.Begin(record));
  EXPECT_THAT(records_.FindRequest(record.request_id, record.content), Began(1));
}

TEST_F(JobRecordsTest, TheSameRequestIdWithOtherContentAlreadyExists) {
  ASSERT_OK(records_.Begin(Record(1)));
  EXPECT_THAT(records_.FindRequest("request-1", Digest::Of("other")),
              StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr("request-1")));
}

TEST_F(JobRecordsTest, AnOperationBeginsOnce) {
  ASSERT_OK(records_.Begin(Record(1)));
  EXPECT_THAT(records_.Begin(Record(1)), StatusIs(absl::StatusCode::kAborted));
}

TEST_F(JobRecordsTest, TheResultTakesThePlaceOfTheIntent) {
  ASSERT_OK(records_.Begin(Record(1)));
  ASSERT_OK(records_.Finish(records_.IdOf(1), "ended"));
  EXPECT_THAT(records_.Get(records_.IdOf(1)), IsOkAndHolds(std::string("ended")));
  EXPECT_THAT(records_.Finish("op-7", "ended"), StatusIs(absl::StatusCode::kNotFound));
}

TEST_F(JobRecordsTest, ListsNewestFirstAndPageByPage) {
  for (int i = 1; i <= 5; ++i) ASSERT_OK(records_.Begin(Record(i)));
  const auto first = records_.List("", 2);
  ASSERT_EQ(first.size(), 2u);
  EXPECT_EQ(first[0].first, records_.IdOf(5));
  const auto next = records_.List(first[1].first, 2);
  ASSERT_EQ(next.size(), 2u);
  EXPECT_EQ(next[0].first, records_.IdOf(3));
}

TEST_F(JobRecordsTest, OnlyTheLastFinishedOperationsAreKeptButTheirRequestIdsLonger) {
  for (int i = 1; i <= 25; ++i) {
    ASSERT_OK(records_.Begin(Record(i)));
    ASSERT_OK(records_.Finish(records_.IdOf(i), "ended"));
    ASSERT_LE(Objects(), 10 + 1);
  }
  EXPECT_THAT(records_.Get(records_.IdOf(15)),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr(records_.IdOf(15))));
  EXPECT_OK(records_.Get(records_.IdOf(16)).status());
  EXPECT_EQ(records_.List("", 100).size(), 10u);
  EXPECT_THAT(records_.FindRequest("request-1", Record(1).content), Began(1));
}

TEST_F(JobRecordsTest, IdsSortAsTheirNumbersDo) {
  EXPECT_EQ(records_.IdOf(0xab), "op-00000000000000ab");
  EXPECT_LT(records_.IdOf(9), records_.IdOf(10));
  EXPECT_LT(records_.IdOf(0xffff), records_.IdOf(0x10000));
}

TEST_F(JobRecordsTest, ARequestIdIsRememberedForADay) {
  ASSERT_OK(records_.Begin(Record(1)));
  clock_.Advance(absl::Hours(24) - absl::Nanoseconds(1));
  EXPECT_THAT(records_.FindRequest("request-1", Digest::Of("other")),
              StatusIs(absl::StatusCode::kAlreadyExists));
  JobRecord again = Record(2);
  again.request_id = "request-1";
  EXPECT_THAT(records_.Begin(again), StatusIs(absl::StatusCode::kAborted, HasSubstr("request-1")));
  clock_.Advance(absl::Nanoseconds(1));
  EXPECT_THAT(records_.FindRequest("request-1", again.content), IsNew());
  ASSERT_OK(records_.Begin(again));
  EXPECT_THAT(records_.FindRequest("request-1", again.content), Began(2));
}

TEST_F(JobRecordsTest, EveryRequestIdThatIsADayOldMayBeginAnother) {
  for (int i = 1; i <= 3; ++i) ASSERT_OK(records_.Begin(Record(i)));
  clock_.Advance(absl::Hours(24));
  // Neither the oldest nor the youngest comes first.
  int number = 4;
  for (const char* id : {"request-2", "request-3", "request-1"}) {
    JobRecord again = Record(number);
    again.request_id = id;
    ASSERT_OK(records_.Begin(again)) << id;
    EXPECT_THAT(records_.FindRequest(id, again.content), Began(number)) << id;
    ++number;
  }
}

TEST_F(JobRecordsTest, NoRequestIsForgottenEarlySoANewOneIsRefusedWhenThereIsNoRoom) {
  JobRecords records(store_, /*epoch=*/1, clock_,
                     {.noun = "operation", .id_prefix = "op-", .requests_max = 3});
  for (int i = 1; i <= 3; ++i) {
    ASSERT_OK(records.Begin(Record(i)));
    clock_.Advance(absl::Hours(1));
  }
  const auto no_room = StatusIs(
      absl::StatusCode::kResourceExhausted,
      "request ids: expected less than 3 in 24h, found 3; there is room for another in 21h");
  EXPECT_THAT(records.FindRequest("request-4", Record(4).content), no_room);
  EXPECT_THAT(records.Begin(Record(4)), no_room);
  // What is remembered still answers.
  EXPECT_THAT(records.FindRequest("request-1", Record(1).content), Began(1));
  clock_.Advance(absl::Hours(21));
  EXPECT_THAT(records.FindRequest("request-4", Record(4).content), IsNew());
  ASSERT_OK(records.Begin(Record(4)));
  EXPECT_THAT(records.FindRequest("request-5", Record(5).content),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("in 1h")));
}

}  // namespace
}  // namespace crossmesh

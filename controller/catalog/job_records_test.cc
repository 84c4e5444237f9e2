#include "controller/catalog/job_records.h"

#include "common/base/fake_clock.h"
#include "common/testing/status_matchers.h"
#include "controller/store/memory_store.h"

#include <cstdint>
#include <iterator>
#include <string>
#include <vector>

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
            .shown = "began",
            .resumption = "how"};
  }
  // Of FindRequest.
  using Found = std::optional<std::string>;
  static auto IsNew() { return IsOkAndHolds(Found()); }
  auto Began(uint64_t number) const { return IsOkAndHolds(Found(records_.IdOf(number))); }
  int64_t Objects(const std::string& prefix) {
    return std::ssize(*store_.List(prefix, "", 1'000'000));
  }
  // The memory store is done at once.
  static absl::Status Begin(JobRecords& records, const JobRecord& record) {
    absl::Status done = absl::UnknownError("not done");
    records.Begin(record, [&](const absl::Status& status) { done = status; });
    return done;
  }
  absl::Status Begin(const JobRecord& record) { return Begin(records_, record); }
  absl::Status Finish(int number, const std::string& shown = "ended") {
    JobRecord record = Record(number);
    record.shown = shown;
    absl::Status done = absl::UnknownError("not done");
    records_.Finish(record, [&](const absl::Status& status) { done = status; });
    return done;
  }
  static absl::Status RecordProgress(JobRecords& records, int number, const std::string& progress) {
    absl::Status done = absl::UnknownError("not done");
    records.RecordProgress(number, progress, [&](const absl::Status& status) { done = status; });
    return done;
  }
  // Of the next controller.
  JobRecords Next(const JobRecords::Options& options = {.noun = "operation", .id_prefix = "op-"}) {
    return JobRecords(store_, /*epoch=*/2, clock_, options);
  }

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
  ASSERT_OK(Begin(record));
  EXPECT_THAT(records_.FindRequest(record.request_id, record.content), Began(1));
}

TEST_F(JobRecordsTest, TheSameRequestIdWithOtherContentAlreadyExists) {
  ASSERT_OK(Begin(Record(1)));
  EXPECT_THAT(records_.FindRequest("request-1", Digest::Of("other")),
              StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr("request-1")));
}

TEST_F(JobRecordsTest, AnOperationBeginsOnce) {
  ASSERT_OK(Begin(Record(1)));
  EXPECT_THAT(Begin(Record(1)), StatusIs(absl::StatusCode::kAborted));
}

TEST_F(JobRecordsTest, TheResultTakesThePlaceOfTheIntent) {
  ASSERT_OK(Begin(Record(1)));
  ASSERT_OK(Finish(1));
  EXPECT_THAT(records_.Get(records_.IdOf(1)), IsOkAndHolds(std::string("ended")));
  EXPECT_THAT(Finish(7), StatusIs(absl::StatusCode::kNotFound));
}

TEST_F(JobRecordsTest, ListsNewestFirstAndPageByPage) {
  for (int i = 1; i <= 5; ++i) ASSERT_OK(Begin(Record(i)));
  const auto first = records_.List("", 2);
  ASSERT_EQ(first.size(), 2u);
  EXPECT_EQ(first[0].first, records_.IdOf(5));
  const auto next = records_.List(first[1].first, 2);
  ASSERT_EQ(next.size(), 2u);
  EXPECT_EQ(next[0].first, records_.IdOf(3));
}

TEST_F(JobRecordsTest, OnlyTheLastFinishedOperationsAreKeptButTheirRequestIdsLonger) {
  for (int i = 1; i <= 25; ++i) {
    ASSERT_OK(Begin(Record(i)));
    ASSERT_OK(Finish(i));
    ASSERT_LE(Objects("operation/"), 10 + 1);
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
  ASSERT_OK(Begin(Record(1)));
  clock_.Advance(absl::Hours(24) - absl::Nanoseconds(1));
  EXPECT_THAT(records_.FindRequest("request-1", Digest::Of("other")),
              StatusIs(absl::StatusCode::kAlreadyExists));
  JobRecord again = Record(2);
  again.request_id = "request-1";
  EXPECT_THAT(Begin(again), StatusIs(absl::StatusCode::kAborted, HasSubstr("request-1")));
  clock_.Advance(absl::Nanoseconds(1));
  EXPECT_THAT(records_.FindRequest("request-1", again.content), IsNew());
  ASSERT_OK(Begin(again));
  EXPECT_THAT(records_.FindRequest("request-1", again.content), Began(2));
}

TEST_F(JobRecordsTest, ARequestIdIsRememberedAsLongAsIsSaid) {
  JobRecords records(
      store_, /*epoch=*/1, clock_,
      {.noun = "operation", .id_prefix = "op-", .request_ids_for = absl::Minutes(1)});
  ASSERT_OK(Begin(records, Record(1)));
  clock_.Advance(absl::Minutes(1) - absl::Nanoseconds(1));
  EXPECT_THAT(records.FindRequest("request-1", Record(1).content), Began(1));
  clock_.Advance(absl::Nanoseconds(1));
  EXPECT_THAT(records.FindRequest("request-1", Record(1).content), IsNew());
  ASSERT_OK(Begin(records, Record(2)));  // what is too old goes out of the store with it
  EXPECT_EQ(store_.RevisionOf("request-operation/" + records.IdOf(1)).value(), 0);
}

TEST_F(JobRecordsTest, EveryRequestIdThatIsADayOldMayBeginAnother) {
  for (int i = 1; i <= 3; ++i) ASSERT_OK(Begin(Record(i)));
  clock_.Advance(absl::Hours(24));
  // Neither the oldest nor the youngest comes first.
  int number = 4;
  for (const char* id : {"request-2", "request-3", "request-1"}) {
    JobRecord again = Record(number);
    again.request_id = id;
    ASSERT_OK(Begin(again)) << id;
    EXPECT_THAT(records_.FindRequest(id, again.content), Began(number)) << id;
    ++number;
  }
}

TEST_F(JobRecordsTest, NoRequestIsForgottenEarlySoANewOneIsRefusedWhenThereIsNoRoom) {
  JobRecords records(store_, /*epoch=*/1, clock_,
                     {.noun = "operation", .id_prefix = "op-", .requests_max = 3});
  for (int i = 1; i <= 3; ++i) {
    ASSERT_OK(Begin(records, Record(i)));
    clock_.Advance(absl::Hours(1));
  }
  const auto no_room = StatusIs(
      absl::StatusCode::kResourceExhausted,
      "request ids: expected less than 3 in 24h, found 3; there is room for another in 21h");
  EXPECT_THAT(records.FindRequest("request-4", Record(4).content), no_room);
  EXPECT_THAT(Begin(records, Record(4)), no_room);
  // What is remembered still answers.
  EXPECT_THAT(records.FindRequest("request-1", Record(1).content), Began(1));
  clock_.Advance(absl::Hours(21));
  EXPECT_THAT(records.FindRequest("request-4", Record(4).content), IsNew());
  ASSERT_OK(Begin(records, Record(4)));
  EXPECT_THAT(records.FindRequest("request-5", Record(5).content),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("in 1h")));
}

TEST_F(JobRecordsTest, TheNextControllerFindsWhatHadNotEnded) {
  for (int i = 1; i <= 4; ++i) ASSERT_OK(Begin(Record(i)));
  ASSERT_OK(Finish(2));
  JobRecord amended = Record(3);
  amended.shown = "goes on";
  amended.resumption = "otherwise";
  records_.Amend(amended, [](const absl::Status& status) { EXPECT_OK(status); });
  JobRecords next = Next();
  ASSERT_OK_AND_ASSIGN(const std::vector<JobRecords::Unfinished> unfinished, next.Load());
  ASSERT_EQ(unfinished.size(), 3);
  EXPECT_EQ(unfinished[0].number, 1);
  EXPECT_EQ(unfinished[0].content, Record(1).content);
  EXPECT_EQ(unfinished[0].shown, "began");
  EXPECT_EQ(unfinished[0].resumption, "how");
  EXPECT_EQ(unfinished[1].shown, "goes on");
  EXPECT_EQ(unfinished[1].resumption, "otherwise");
  EXPECT_EQ(unfinished[2].number, 4);
  EXPECT_THAT(next.FindRequest("request-2", Record(2).content), Began(2));
  EXPECT_THAT(next.FindRequest("request-2", Digest::Of("other")),
              StatusIs(absl::StatusCode::kAlreadyExists));
  EXPECT_THAT(next.FindRequest("request-5", Record(5).content), IsNew());
  EXPECT_THAT(next.Get(next.IdOf(2)), IsOkAndHolds(std::string("ended")));
}

TEST_F(JobRecordsTest, TheNextControllerKeepsToTheSameBounds) {
  for (int i = 1; i <= 10; ++i) {
    ASSERT_OK(Begin(Record(i)));
    ASSERT_OK(Finish(i));
  }
  JobRecords next = Next({.noun = "operation", .id_prefix = "op-", .finished_max = 10});
  ASSERT_OK(next.Load().status());
  ASSERT_OK(Begin(next, Record(11)));
  next.Finish(Record(11), [](const absl::Status& status) { EXPECT_OK(status); });
  EXPECT_EQ(Objects("operation/"), 10);
  EXPECT_THAT(next.Get(next.IdOf(1)), StatusIs(absl::StatusCode::kNotFound));
}

TEST_F(JobRecordsTest, ARequestIdGrowsOldAcrossControllers) {
  ASSERT_OK(Begin(Record(1)));
  clock_.Advance(absl::Hours(23));
  ASSERT_OK(Begin(Record(2)));
  JobRecords next = Next();
  ASSERT_OK(next.Load().status());
  EXPECT_THAT(next.FindRequest("request-1", Record(1).content), Began(1));
  clock_.Advance(absl::Hours(1));
  EXPECT_THAT(next.FindRequest("request-1", Record(1).content), IsNew());
  EXPECT_THAT(next.FindRequest("request-2", Record(2).content), Began(2));
  JobRecord again = Record(3);
  again.request_id = "request-1";
  ASSERT_OK(Begin(next, again));
  EXPECT_EQ(Objects("request-operation/"), 2) << "what was forgotten is erased";
  JobRecords last = Next();
  ASSERT_OK(last.Load().status());
  EXPECT_THAT(last.FindRequest("request-1", again.content), Began(3));
}

TEST_F(JobRecordsTest, NoClockOfTheNextControllerMakesARequestOlderOrYounger) {
  ASSERT_OK(Begin(Record(1)));
  clock_.Advance(absl::Hours(2));
  ASSERT_OK(Begin(Record(2)));
  for (const absl::Duration ahead : {absl::Hours(24 * 365), absl::Hours(24), -absl::Hours(24)}) {
    FakeClock other(clock_.Now() + ahead);
    JobRecords next(store_, /*epoch=*/2, other, {.noun = "operation", .id_prefix = "op-"});
    ASSERT_OK(next.Load().status());
    EXPECT_THAT(next.FindRequest("request-1", Record(1).content), Began(1)) << ahead;
    other.Advance(absl::Hours(22) - absl::Nanoseconds(1));
    EXPECT_THAT(next.FindRequest("request-1", Record(1).content), Began(1)) << ahead;
    other.Advance(absl::Nanoseconds(1));
    EXPECT_THAT(next.FindRequest("request-1", Record(1).content), IsNew()) << ahead;
    EXPECT_THAT(next.FindRequest("request-2", Record(2).content), Began(2)) << ahead;
  }
}

TEST_F(JobRecordsTest, TimeInWhichNoControllerServesMakesNoRequestOlder) {
  ASSERT_OK(Begin(Record(1)));
  for (int i = 2; i <= 5; ++i) {
    clock_.Advance(absl::Hours(23));
    JobRecords next = Next();
    ASSERT_OK(next.Load().status());
    EXPECT_THAT(next.FindRequest("request-1", Record(1).content), Began(1));
    clock_.Advance(absl::Hours(5));
    ASSERT_OK(Begin(next, Record(i)));
  }
  JobRecords last = Next();
  ASSERT_OK(last.Load().status());
  clock_.Advance(absl::Hours(4));
  EXPECT_THAT(last.FindRequest("request-1", Record(1).content), IsNew());
  EXPECT_THAT(last.FindRequest("request-2", Record(2).content), Began(2));
}

TEST_F(JobRecordsTest, AFencedControllerChangesNothing) {
  ASSERT_OK(Begin(Record(1)));
  ASSERT_OK(Finish(1, "first"));
  ASSERT_OK(Begin(Record(2)));
  ASSERT_OK(store_.Commit({.epoch = 2}).status());
  EXPECT_THAT(Finish(2), StatusIs(absl::StatusCode::kAborted));
  EXPECT_THAT(Begin(Record(3)), StatusIs(absl::StatusCode::kAborted));
  EXPECT_THAT(Begin(Record(3)), StatusIs(absl::StatusCode::kAborted, HasSubstr("fenced")))
      << "the request is not taken";
  JobRecords next = Next();
  ASSERT_OK_AND_ASSIGN(const std::vector<JobRecords::Unfinished> unfinished, next.Load());
  ASSERT_EQ(unfinished.size(), 1);
  EXPECT_EQ(unfinished[0].number, 2);
}

TEST_F(JobRecordsTest, ARecordThatDoesNotParseIsNamed) {
  for (const std::string& key :
       {records_.IdOf(1).insert(0, "operation/"), std::string("operation/op"),
        records_.IdOf(1).insert(0, "request-operation/")}) {
    MemoryStore store;
    ASSERT_OK(store.Commit({.writes = {{key, "\xff\xff"}}}).status());
    JobRecords records(store, /*epoch=*/2, clock_, {.noun = "operation", .id_prefix = "op-"});
    EXPECT_THAT(records.Load(), StatusIs(absl::StatusCode::kDataLoss, HasSubstr(key)));
  }
}

TEST_F(JobRecordsTest, ProgressIsKeptBesideTheIntentUntilTheEnd) {
  ASSERT_OK(Begin(Record(1)));
  ASSERT_OK(Begin(Record(2)));
  ASSERT_OK(RecordProgress(records_, 1, "some"));
  ASSERT_OK(RecordProgress(records_, 1, "more"));
  ASSERT_OK_AND_ASSIGN(const std::vector<JobRecords::Unfinished> unfinished, Next().Load());
  ASSERT_EQ(unfinished.size(), 2);
  EXPECT_EQ(unfinished[0].progress, "more");
  EXPECT_EQ(unfinished[0].resumption, "how");
  EXPECT_EQ(unfinished[1].progress, "");
  EXPECT_EQ(Objects("progress-operation/"), 1);
  ASSERT_OK(Finish(1));
  EXPECT_EQ(Objects("progress-operation/"), 0);
}

TEST_F(JobRecordsTest, ProgressIsOfAJobThatHasBegun) {
  EXPECT_THAT(RecordProgress(records_, 1, "some"), StatusIs(absl::StatusCode::kNotFound));
  ASSERT_OK(Begin(Record(1)));
  ASSERT_OK(store_.Commit({.epoch = 2}).status());
  EXPECT_THAT(RecordProgress(records_, 1, "some"), StatusIs(absl::StatusCode::kAborted));
  EXPECT_EQ(Objects("progress-operation/"), 0);
}

}  // namespace
}  // namespace crossmesh

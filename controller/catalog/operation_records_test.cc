#include "controller/catalog/operation_records.h"

#include "common/base/fake_clock.h"
#include "common/testing/status_matchers.h"
#include "controller/store/memory_store.h"

#include <string>

#include <absl/strings/str_format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using testing::HasSubstr;

class OperationRecordsTest : public testing::Test {
 protected:
  static OperationRecord Record(int number) {
    return {absl::StrFormat("op-%08d", number), absl::StrFormat("request-%d", number),
            Digest::Of(absl::StrFormat("content %d", number)), "began"};
  }
  int64_t Objects() { return static_cast<int64_t>(store_.List("", "", 1'000'000)->size()); }

  MemoryStore store_;
  FakeClock clock_;
  OperationRecords records_{store_, /*epoch=*/1, clock_, {.finished_max = 10}};
};

TEST_F(OperationRecordsTest, ARequestIsNewUntilItsOperationBegan) {
  const OperationRecord record = Record(1);
  EXPECT_THAT(records_.FindRequest(record.request_id, record.content),
              IsOkAndHolds(std::optional<std::string>()));
  ASSERT_OK(records_.Begin(record));
  EXPECT_THAT(records_.FindRequest(record.request_id, record.content),
              IsOkAndHolds(std::optional<std::string>(record.id)));
}

TEST_F(OperationRecordsTest, TheSameRequestIdWithOtherContentAlreadyExists) {
  ASSERT_OK(records_.Begin(Record(1)));
  EXPECT_THAT(records_.FindRequest("request-1", Digest::Of("other")),
              StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr("request-1")));
}

TEST_F(OperationRecordsTest, AnOperationBeginsOnce) {
  ASSERT_OK(records_.Begin(Record(1)));
  EXPECT_THAT(records_.Begin(Record(1)), StatusIs(absl::StatusCode::kAborted));
}

TEST_F(OperationRecordsTest, TheResultTakesThePlaceOfTheIntent) {
  ASSERT_OK(records_.Begin(Record(1)));
  ASSERT_OK(records_.Finish("op-00000001", "ended"));
  EXPECT_THAT(records_.Get("op-00000001"), IsOkAndHolds(std::string("ended")));
  EXPECT_THAT(records_.Finish("op-7", "ended"), StatusIs(absl::StatusCode::kNotFound));
}

TEST_F(OperationRecordsTest, ListsNewestFirstAndPageByPage) {
  for (int i = 1; i <= 5; ++i) ASSERT_OK(records_.Begin(Record(i)));
  const auto first = records_.List("", 2);
  ASSERT_EQ(first.size(), 2u);
  EXPECT_EQ(first[0].first, "op-00000005");
  const auto next = records_.List(first[1].first, 2);
  ASSERT_EQ(next.size(), 2u);
  EXPECT_EQ(next[0].first, "op-00000003");
}

TEST_F(OperationRecordsTest, OnlyTheLastFinishedOperationsAreKept) {
  for (int i = 1; i <= 25; ++i) {
    ASSERT_OK(records_.Begin(Record(i)));
    ASSERT_OK(records_.Finish(Record(i).id, "ended"));
  }
  EXPECT_THAT(records_.Get("op-00000015"),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("op-00000015")));
  EXPECT_OK(records_.Get("op-00000016").status());
  EXPECT_EQ(records_.List("", 100).size(), 10u);
}

TEST_F(OperationRecordsTest, MemoryIsFlatOnceRequestIdsAge) {
  int64_t highest = 0;
  for (int i = 1; i <= 500; ++i) {
    clock_.Advance(absl::Hours(1));
    ASSERT_OK(records_.Begin(Record(i)));
    ASSERT_OK(records_.Finish(Record(i).id, "ended"));
    highest = std::max(highest, Objects());
  }
  EXPECT_LE(highest, 10 + 24);
}

}  // namespace
}  // namespace crossmesh

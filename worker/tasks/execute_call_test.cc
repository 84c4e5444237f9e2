#include "worker/tasks/execute_call.h"

#include "common/testing/status_matchers.h"
#include "worker/tasks/testing/task_fixture.h"

#include <functional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Optional;
using ::testing::Pair;

using ExecuteCallTest = TaskFixture;

TEST_F(ExecuteCallTest, TakesAPartInPieces) {
  FakeCall call(table_);
  Send(call, StartOf(Key(1)));
  EXPECT_THAT(call.caller->said, ElementsAre("need part"));
  const size_t half = part_bytes_.size() / 2;
  Send(call, PieceOf(0, half, false));
  Send(call, PieceOf(half, part_bytes_.size(), true));
  EXPECT_THAT(call.caller->said, ElementsAre("need part", "accepted"));
}

TEST_F(ExecuteCallTest, RefusesAPartOfAnotherDigest) {
  v1::ExecuteRequest start = StartOf(Key(1));
  start.mutable_start()->set_part_digest(Digest{.high = 1, .low = 2}.ToString());
  const auto call = StartWith(start);
  EXPECT_THAT(call->caller->end, Optional(StatusIs(absl::StatusCode::kInvalidArgument,
                                                   HasSubstr(part_digest_.ToString()))));
  EXPECT_THAT(Rejections(), ElementsAre("invalid"));
}

TEST_F(ExecuteCallTest, RefusesBytesThatAreNoPart) {
  FakeCall call(table_);
  Send(call, StartOf(Key(1)));
  Send(call, PieceOf(0, part_bytes_.size() / 2, true));
  EXPECT_THAT(call.caller->end, Optional(StatusIs(absl::StatusCode::kInvalidArgument)));
}

TEST_F(ExecuteCallTest, RefusesMessagesOutOfOrder) {
  const auto end_of = [&](const std::vector<v1::ExecuteRequest>& requests) {
    FakeCall call(table_);
    for (const v1::ExecuteRequest& request : requests) Send(call, request);
    return call.caller->end;
  };
  const auto is_refused = [](absl::string_view what) {
    return Optional(StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(std::string(what))));
  };
  EXPECT_THAT(end_of({ResolveOf({2}, true)}), is_refused("expected start"));
  EXPECT_THAT(end_of({v1::ExecuteRequest()}), is_refused("expected start"));
  EXPECT_THAT(end_of({PieceOf(0, 1, false)}), is_refused("not asked for"));
  EXPECT_THAT(end_of({StartOf(Key(1)), StartOf(Key(1))}), is_refused("second"));
  EXPECT_THAT(end_of({StartOf(Key(1)), ResolveOf({2}, true)}), is_refused("expected piece"));
}

TEST_F(ExecuteCallTest, APeerThatIsLostBeforeThePartHasComeIsLostForTheTask) {
  v1::ExecuteRequest start = StartOf(Key(1));
  start.mutable_start()->add_peers()->set_worker("w2");
  const auto lost = [](const std::string& worker) {
    v1::ExecuteRequest request;
    request.mutable_peer_lost()->set_worker(worker);
    return request;
  };
  FakeCall call(table_);
  Send(call, start);
  Send(call, lost("w2"));
  Send(call, lost("somebody"));
  EXPECT_THAT(executor_.lost(), IsEmpty());
  Send(call, PieceOf(0, part_bytes_.size(), true));
  EXPECT_THAT(call.caller->said, ElementsAre("need part", "accepted"));
  EXPECT_THAT(executor_.lost(), ElementsAre(Pair(Key(1), "w2")));
}

TEST_F(ExecuteCallTest, SaysNothingAfterTheEnd) {
  FakeCall call(table_);
  Send(call, ResolveOf({2}, true));
  Send(call, StartOf(Key(1)));
  EXPECT_THAT(call.caller->said, IsEmpty());
}

TEST_F(ExecuteCallTest, RefusesStartsWithBadFields) {
  struct Case {
    std::function<void(v1::ExecuteRequest::Start&)> spoil;
    std::string field;
  };
  const std::vector<Case> cases = {
      {[](auto& start) { start.set_token("short"); }, "token"},
      {[](auto& start) { start.set_part_digest("xyz"); }, "part_digest"},
      {[](auto& start) { start.clear_deadline(); }, "deadline"},
      {[](auto& start) { start.mutable_deadline()->set_seconds(-1); }, "deadline"},
      {[](auto& start) { start.mutable_deadline()->set_seconds(int64_t{1} << 40); }, "deadline"},
      {[](auto& start) { start.clear_stall_limit(); }, "stall_limit"},
      {[](auto& start) { start.set_source_storage(std::string(300, 'x')); }, "source_storage"},
      {[](auto& start) { start.mutable_peers(0)->set_data_address(std::string(5000, 'x')); },
       "peers"},
  };
  for (const Case& bad : cases) {
    v1::ExecuteRequest request = StartOf(Key(1));
    bad.spoil(*request.mutable_start());
    FakeCall call(table_);
    Send(call, request);
    EXPECT_THAT(call.caller->end,
                Optional(StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(bad.field))));
  }
}

TEST_F(ExecuteCallTest, RefusesDeviceRanksThatThePlanDoesNotHave) {
  v1::ExecuteRequest request = StartOf(Key(1));
  request.mutable_start()->add_peers()->set_worker("w2");
  request.mutable_start()->mutable_peers(1)->add_devices(99);
  const auto call = StartWith(request);
  EXPECT_THAT(call->caller->end,
              Optional(StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("99"))));
  EXPECT_FALSE(StatusOf("new", "b.0").writing);
}

}  // namespace
}  // namespace crossmesh

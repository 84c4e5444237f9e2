#include "worker/tasks/execute_call.h"

#include "common/testing/status_matchers.h"
#include "worker/tasks/testing/task_fixture.h"

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <absl/strings/str_cat.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Optional;
using ::testing::Pair;
using ::testing::SizeIs;
using ::testing::UnorderedElementsAre;

using ExecuteCallTest = TaskFixture;

TEST_F(ExecuteCallTest, TakesAPartInPieces) {
  FakeExecuteCall call(table_);
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
  FakeExecuteCall call(table_);
  Send(call, StartOf(Key(1)));
  Send(call, PieceOf(0, part_bytes_.size() / 2, true));
  EXPECT_THAT(call.caller->end, Optional(StatusIs(absl::StatusCode::kInvalidArgument)));
}

TEST_F(ExecuteCallTest, RefusesMessagesOutOfOrder) {
  const auto end_of = [&](const std::vector<v1::ExecuteRequest>& requests) {
    FakeExecuteCall call(table_);
    for (const v1::ExecuteRequest& request : requests) Send(call, request);
    return call.caller->end;
  };
  const auto is_refused = [](absl::string_view what) {
    return Optional(StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(std::string(what))));
  };
  EXPECT_THAT(end_of({ResolveOf({2}, true)}), is_refused("expected start"));
  EXPECT_THAT(end_of({v1::ExecuteRequest()}), is_refused("expected start"));
  EXPECT_THAT(end_of({PieceOf(0, 1, false)}), is_refused("not asked for"));
  v1::ExecuteRequest lost;
  lost.mutable_peer_lost()->set_worker("w2");
  EXPECT_THAT(end_of({lost}), is_refused("expected start, found peer_lost"));
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
  FakeExecuteCall call(table_);
  Send(call, start);
  Send(call, lost("w2"));
  Send(call, lost("somebody"));
  EXPECT_THAT(executor_.lost(), IsEmpty());
  Send(call, PieceOf(0, part_bytes_.size(), true));
  EXPECT_THAT(call.caller->said, ElementsAre("need part", "accepted"));
  EXPECT_THAT(executor_.lost(), ElementsAre(Pair(Key(1), "w2")));
}

TEST_F(ExecuteCallTest, ATaskRunsOnAfterACallThatEndedInAnError) {
  const auto call = Start(Key(1));
  Send(*call, StartOf(Key(1)));
  EXPECT_THAT(call->caller->end, Optional(StatusIs(absl::StatusCode::kInvalidArgument)));
  Finish(Key(1));
  EXPECT_THAT(call->caller->said, ElementsAre("accepted"));
  EXPECT_THAT(Start(Key(1))->caller->said,
              ElementsAre("accepted", "done 2 OK", "done 3 OK", "report OK"));
}

TEST_F(ExecuteCallTest, ACallThatIsGoneStartsNothing) {
  FakeExecuteCall call(table_);
  call.call.OnGone();
  Send(call, StartOf(Key(1)));
  EXPECT_THAT(call.caller->said, IsEmpty());
  EXPECT_FALSE(call.caller->end.has_value());
}

TEST_F(ExecuteCallTest, SaysNothingAfterTheEnd) {
  FakeExecuteCall call(table_);
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
    FakeExecuteCall call(table_);
    Send(call, request);
    EXPECT_THAT(call.caller->end,
                Optional(StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(bad.field))));
  }
}

TEST_F(ExecuteCallTest, RefusesDeviceRanksThatThePlanDoesNotHave) {
  for (const int32_t rank : {-1, 4, 99}) {
    v1::ExecuteRequest request = StartOf(Key(1));
    request.mutable_start()->add_peers()->set_worker("w2");
    request.mutable_start()->mutable_peers(1)->add_devices(rank);
    const auto call = StartWith(request);
    EXPECT_THAT(call->caller->end,
                Optional(StatusIs(absl::StatusCode::kInvalidArgument,
                                  HasSubstr(absl::StrCat("from 0 to 3, found ", rank)))));
    EXPECT_FALSE(StatusOf("new", "b.0").writing);
  }
}

TEST_F(ExecuteCallTest, TheExecutorIsToldOfEveryOtherWorkerAndItsDevices) {
  v1::ExecuteRequest request = StartOf(Key(1));
  request.mutable_start()->mutable_peers(0)->clear_devices();
  const auto add_peer = [&](const std::string& worker, const std::vector<int32_t>& devices) {
    v1::ExecuteRequest::Peer& peer = *request.mutable_start()->add_peers();
    peer.set_worker(worker);
    peer.set_data_address(absl::StrCat("address of ", worker));
    peer.mutable_devices()->Assign(devices.begin(), devices.end());
  };
  add_peer("w2", {0, 3});
  add_peer("w3", {1});
  const auto call = StartWith(request);
  const TaskSpec& spec = executor_.spec(Key(1));
  ASSERT_THAT(spec.peers, SizeIs(2));
  EXPECT_EQ(spec.peers[0].worker, "w2");
  EXPECT_EQ(spec.peers[0].address, "address of w2");
  EXPECT_EQ(spec.peers[1].worker, "w3");
  EXPECT_THAT(spec.peer_of_device, UnorderedElementsAre(Pair(0, 0), Pair(3, 0), Pair(1, 1)));
}

}  // namespace
}  // namespace crossmesh

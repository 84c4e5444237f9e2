// A worker's end, with a process at the other that a test plays, and that may lie.

#include "worker/gpu/process/gpu_connection.h"

#include "common/base/fake_clock.h"
#include "common/event_loop/event_loop.h"
#include "common/testing/status_matchers.h"
#include "common/wire/communicator_codec.h"
#include "worker/gpu/protocol/gpu_message.h"
#include "worker/gpu/protocol/gpu_protocol.h"
#include "worker/gpu/protocol/testing/gpu_requests_of_tests.h"
#include "worker/gpu/protocol/testing/run_until.h"

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>
#include <absl/time/time.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

class GpuConnectionTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_OK_AND_ASSIGN(auto ends, MessageSocket::MakePair());
    ASSERT_OK_AND_ASSIGN(
        process_, MessageSocket::Create(
                      std::move(ends.second),
                      {.on_message =
                           [this](const std::string& bytes, UniqueFd /*descriptor*/) {
                             ASSERT_OK_AND_ASSIGN(requests_.emplace_back(), ParseGpuRequest(bytes));
                           },
                       .on_closed = [](const absl::Status& /*why*/) {}}));
    loop_->AddSource(*process_);
    ASSERT_OK_AND_ASSIGN(
        connection_,
        GpuConnection::Create(
            *loop_, std::move(ends.first),
            {.rank = kRank,
             .start_limit = absl::Seconds(60),
             .ping_interval = absl::Seconds(1),
             .ping_limit = absl::Seconds(20)},
            {.on_hello = [this](const PreflightReport& /*preflight*/,
                                const v1::GpuNotice::Hello& /*hello*/) { ++hellos_; },
             .on_communicator_lost = [this](const CommunicatorKey& key,
                                            const absl::Status& /*why*/) { gone_ = key; },
             .on_lost = [this](const absl::Status& why) { lost_ = why; }}));
  }
  void TearDown() override {
    connection_.reset();
    loop_->RemoveSource(*process_);
  }

  static v1::GpuNotice Hello(const RankName& rank, uint32_t protocol = kGpuProtocol) {
    v1::GpuNotice notice;
    notice.mutable_hello()->set_protocol(protocol);
    *notice.mutable_hello()->mutable_preflight() = ToProto(PreflightReport{.rank = rank});
    return notice;
  }
  static v1::GpuNotice AnswerTo(uint64_t request) {
    v1::GpuNotice notice;
    notice.mutable_answer()->set_request(request);
    return notice;
  }
  static v1::GpuNotice IdFor(uint64_t request) {
    v1::GpuNotice notice = AnswerTo(request);
    notice.mutable_answer()->mutable_minted()->set_id("id");
    return notice;
  }

  static v1::GpuNotice ProgressOf(uint64_t request, int64_t moved_bytes) {
    v1::GpuNotice notice;
    notice.mutable_task_progress()->set_request(request);
    notice.mutable_task_progress()->set_moved_bytes(moved_bytes);
    return notice;
  }

  void Say(const v1::GpuNotice& notice) { ASSERT_OK(process_->Send(notice.SerializeAsString())); }
  void SayHello() {
    Say(Hello(kRank));
    RunUntil(*loop_, [&] { return hellos_ == 1 && !requests_.empty(); });
  }
  // Begins a call, and waits until the process has so many. The first request is a ping.
  void Call(v1::GpuRequest request = MintCommunicatorIdRequest(), size_t requests = 2) {
    connection_->Call(std::move(request), UniqueFd(), absl::Seconds(30),
                      {.done = [this](auto reply) { reply_.emplace(std::move(reply)); },
                       .progress = [this](int64_t moved) { moved_ = moved; }});
    RunUntil(*loop_, [&] { return requests_.size() == requests; });
  }
  void ExpectLost(absl::StatusCode code, const std::string& text) {
    RunUntil(*loop_, [&] { return lost_.has_value(); });
    EXPECT_THAT(*lost_, StatusIs(code, HasSubstr(text)));
  }

  inline static const RankName kRank = {.gpu = "GPU-a", .incarnation = 7};
  FakeClock clock_;
  std::unique_ptr<EventLoop> loop_ = *EventLoop::Create(clock_, {});
  std::unique_ptr<MessageSocket> process_;
  std::unique_ptr<GpuConnection> connection_;
  std::vector<v1::GpuRequest> requests_;
  std::optional<CommunicatorKey> gone_;
  std::optional<int64_t> moved_;
  int hellos_ = 0;
  std::optional<absl::Status> lost_;
  std::optional<absl::StatusOr<GpuConnection::Reply>> reply_;
};

TEST_F(GpuConnectionTest, ACallEndsWithItsAnswer) {
  SayHello();
  Call();
  Say(IdFor(requests_[1].id()));
  RunUntil(*loop_, [&] { return reply_.has_value(); });
  ASSERT_OK(*reply_);
  EXPECT_EQ((*reply_)->answer.minted().id(), "id");
}

TEST_F(GpuConnectionTest, ARefusalComesWithTheNameOfTheGpu) {
  SayHello();
  Call();
  v1::GpuNotice refusal = AnswerTo(requests_[1].id());
  *refusal.mutable_answer()->mutable_status() = ToProto(absl::NotFoundError("arena 3"));
  Say(refusal);
  RunUntil(*loop_, [&] { return reply_.has_value(); });
  EXPECT_THAT(*reply_, StatusIs(absl::StatusCode::kNotFound, "process of GPU-a#7: arena 3"));
}

TEST_F(GpuConnectionTest, CallsEndWhenTheSocketIsClosed) {
  SayHello();
  Call();
  process_->Close();
  ExpectLost(absl::StatusCode::kUnavailable, "closed");
  EXPECT_THAT(*reply_, StatusIs(absl::StatusCode::kUnavailable, HasSubstr("GPU-a#7")));
}

TEST_F(GpuConnectionTest, LastWordsAreTheCause) {
  SayHello();
  v1::GpuNotice words;
  *words.mutable_last_words()->mutable_cause() =
      ToProto(absl::InternalError("CUDA_ERROR_ILLEGAL_ADDRESS"));
  Say(words);
  ExpectLost(absl::StatusCode::kInternal, "CUDA_ERROR_ILLEGAL_ADDRESS");
}

TEST_F(GpuConnectionTest, AProcessThatDoesNotBeginIsLost) {
  clock_.Advance(absl::Seconds(60));
  ExpectLost(absl::StatusCode::kDeadlineExceeded, "did not begin within 1m");
}

TEST_F(GpuConnectionTest, BytesThatAreNoNoticeAreNotTaken) {
  SayHello();
  ASSERT_OK(process_->Send("no notice"));
  ExpectLost(absl::StatusCode::kInvalidArgument, "expected a notice");
}

TEST_F(GpuConnectionTest, ANoticeThatIsCutIsNotTaken) {
  const std::string hello = Hello(kRank).SerializeAsString();
  ASSERT_OK(process_->Send(hello.substr(0, hello.size() / 2)));
  ExpectLost(absl::StatusCode::kInvalidArgument, "expected a notice");
}

TEST_F(GpuConnectionTest, TheFirstNoticeIsAHello) {
  Say(AnswerTo(1));
  ExpectLost(absl::StatusCode::kInvalidArgument, "expected a hello, found another");
}

TEST_F(GpuConnectionTest, ThereIsOneHello) {
  SayHello();
  Say(Hello(kRank));
  ExpectLost(absl::StatusCode::kInvalidArgument, "expected one hello");
  EXPECT_EQ(hellos_, 1);
}

TEST_F(GpuConnectionTest, AnotherProtocolIsToldWithBothVersions) {
  Say(Hello(kRank, 99));
  ExpectLost(absl::StatusCode::kFailedPrecondition,
             absl::StrCat("expected version ", kGpuProtocol, ", found 99"));
}

TEST_F(GpuConnectionTest, AnotherGpuIsNotTaken) {
  Say(Hello({.gpu = "GPU-b", .incarnation = 7}));
  ExpectLost(absl::StatusCode::kInvalidArgument, "expected GPU-a#7, found GPU-b#7");
}

TEST_F(GpuConnectionTest, AnAnswerToNothingIsNotTaken) {
  SayHello();
  Say(AnswerTo(77));
  ExpectLost(absl::StatusCode::kInvalidArgument, "request 77, which is not open");
}

TEST_F(GpuConnectionTest, ASecondAnswerIsNotTaken) {
  SayHello();
  Call();
  Say(IdFor(requests_[1].id()));
  Say(IdFor(requests_[1].id()));
  ExpectLost(absl::StatusCode::kInvalidArgument, "which is not open");
}

TEST_F(GpuConnectionTest, AnAnswerOfAnotherKindIsNotTaken) {
  SayHello();
  Call();
  v1::GpuNotice answer = AnswerTo(requests_[1].id());
  answer.mutable_answer()->mutable_report();
  Say(answer);
  ExpectLost(absl::StatusCode::kInvalidArgument,
             "an answer to mint_communicator_id: expected result minted without a descriptor, "
             "found result report without a descriptor");
  EXPECT_THAT(*reply_, StatusIs(absl::StatusCode::kUnavailable));
}

TEST_F(GpuConnectionTest, AnArenaWithoutItsDescriptorIsNotTaken) {
  SayHello();
  v1::GpuRequest create;
  create.mutable_create_arena()->set_arena(1);
  Call(std::move(create));
  Say(AnswerTo(requests_[1].id()));
  ExpectLost(absl::StatusCode::kInvalidArgument, "expected result none with a descriptor");
}

TEST_F(GpuConnectionTest, TheProgressOfACallIsToldUntilItIsOver) {
  SayHello();
  Call();
  Say(ProgressOf(requests_[1].id(), 7));
  RunUntil(*loop_, [&] { return moved_ == 7; });
  Say(IdFor(requests_[1].id()));
  Say(ProgressOf(requests_[1].id(), 8));
  ExpectLost(absl::StatusCode::kInvalidArgument, "which is no task that runs");
  EXPECT_EQ(moved_, 7);
}

TEST_F(GpuConnectionTest, ProgressBelowZeroIsNotTaken) {
  SayHello();
  Call();
  Say(ProgressOf(requests_[1].id(), -1));
  ExpectLost(absl::StatusCode::kInvalidArgument, "task_progress.moved_bytes");
}

TEST_F(GpuConnectionTest, ProgressOfWhatIsNoTaskIsNotTaken) {
  SayHello();
  Say(ProgressOf(requests_[0].id(), 1));
  ExpectLost(absl::StatusCode::kInvalidArgument, "which is no task that runs");
}

TEST_F(GpuConnectionTest, ALostCommunicatorIsToldByItsKey) {
  SayHello();
  const CommunicatorKey key = {.ranks = {kRank}, .purpose = "relay", .epoch = 1};
  v1::GpuNotice lost;
  *lost.mutable_communicator_lost()->mutable_key() = ToProto(key);
  Say(lost);
  RunUntil(*loop_, [&] { return gone_ == key; });
  lost.mutable_communicator_lost()->clear_key();
  Say(lost);
  ExpectLost(absl::StatusCode::kInvalidArgument, "communicator.ranks");
}

TEST_F(GpuConnectionTest, APartIsNeededOnce) {
  SayHello();
  v1::GpuRequest run;
  run.mutable_run_task();
  Call(run);
  v1::GpuNotice answer = AnswerTo(requests_[1].id());
  answer.mutable_answer()->mutable_need_part();
  Say(answer);
  RunUntil(*loop_, [&] { return reply_.has_value(); });
  EXPECT_OK(*reply_);
  run.mutable_run_task()->set_part("part");
  Call(run, 3);
  answer.mutable_answer()->set_request(requests_[2].id());
  Say(answer);
  ExpectLost(absl::StatusCode::kInvalidArgument,
             "an answer to run_task: expected result report without a descriptor, found result "
             "need_part");
}

TEST_F(GpuConnectionTest, PingsFollowEachOther) {
  SayHello();
  ASSERT_THAT(requests_, SizeIs(1));
  EXPECT_TRUE(requests_[0].has_ping());
  Say(AnswerTo(requests_[0].id()));
  while (loop_->RunOnce(absl::ZeroDuration()) > 0) {
  }
  clock_.Advance(absl::Seconds(1));
  RunUntil(*loop_, [&] { return requests_.size() == 2; });
  clock_.Advance(absl::Seconds(20));
  ExpectLost(absl::StatusCode::kDeadlineExceeded, "did not answer ping within 20s");
}

}  // namespace
}  // namespace crossmesh

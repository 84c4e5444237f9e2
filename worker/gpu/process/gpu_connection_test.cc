// A worker's end, with a process at the other that a test plays, and that may lie.

#include "worker/gpu/process/gpu_connection.h"

#include "common/base/fake_clock.h"
#include "common/event_loop/event_loop.h"
#include "common/testing/status_matchers.h"
#include "worker/gpu/protocol/gpu_message_codec.h"
#include "worker/gpu/protocol/gpu_protocol.h"

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <absl/strings/str_cat.h>
#include <absl/time/time.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

class GpuConnectionTest : public testing::Test,
                          private GpuConnection::Listener,
                          private MessageSocket::Sink {
 protected:
  void SetUp() override {
    ASSERT_OK_AND_ASSIGN(auto ends, MessageSocket::MakePair());
    ASSERT_OK_AND_ASSIGN(process_, MessageSocket::Create(std::move(ends.second), *this));
    loop_->AddSource(*process_);
    ASSERT_OK_AND_ASSIGN(connection_, GpuConnection::Create(*loop_, std::move(ends.first),
                                                            {.rank = kRank,
                                                             .start_limit = absl::Seconds(60),
                                                             .ping_interval = absl::Seconds(1),
                                                             .ping_limit = absl::Seconds(20)},
                                                            *this));
  }
  void TearDown() override {
    connection_.reset();
    loop_->RemoveSource(*process_);
  }

  template <typename Condition>
  void RunUntil(Condition condition) {
    while (!condition()) loop_->RunOnce(absl::Seconds(1));
  }

  void Say(GpuNotice::Body body) { ASSERT_OK(process_->Send(Encode({.body = std::move(body)}))); }
  void SayHello() {
    Say(GpuNotice::Hello{.preflight = {.rank = kRank}});
    RunUntil([&] { return hellos_ == 1 && !requests_.empty(); });
  }
  // Begins a call, and waits until the process has it. The first request is a ping.
  void Call() {
    connection_->Call(GpuRequest::MintCommunicatorId(), UniqueFd(), absl::Seconds(30),
                      [this](auto reply) { reply_.emplace(std::move(reply)); });
    RunUntil([&] { return requests_.size() == 2; });
  }
  void ExpectLost(absl::StatusCode code, const std::string& text) {
    RunUntil([&] { return lost_.has_value(); });
    EXPECT_THAT(*lost_, StatusIs(code, HasSubstr(text)));
  }

  inline static const RankName kRank = {.gpu = "GPU-a", .incarnation = 7};
  FakeClock clock_;
  std::unique_ptr<EventLoop> loop_ = *EventLoop::Create(clock_, {});
  std::unique_ptr<MessageSocket> process_;
  std::unique_ptr<GpuConnection> connection_;
  std::vector<GpuRequest> requests_;
  int hellos_ = 0;
  std::optional<absl::Status> lost_;
  std::optional<absl::StatusOr<GpuConnection::Reply>> reply_;

 private:
  void OnHello(const PreflightReport& /*preflight*/) override { ++hellos_; }
  void OnTaskProgress(const GpuNotice::TaskProgress& /*progress*/) override {}
  void OnCommunicatorLost(const GpuNotice::CommunicatorLost& /*lost*/) override {}
  void OnLost(const absl::Status& why) override { lost_ = why; }

  void OnMessage(std::string bytes, UniqueFd /*descriptor*/) override {
    ASSERT_OK_AND_ASSIGN(GpuRequest request, DecodeGpuRequest(bytes));
    requests_.push_back(std::move(request));
  }
  void OnClosed(const absl::Status& /*why*/) override {}
};

TEST_F(GpuConnectionTest, ACallEndsWithItsAnswer) {
  SayHello();
  Call();
  Say(GpuNotice::Answer{.request = requests_[1].id, .result = GpuNotice::MintedId{.id = "id"}});
  RunUntil([&] { return reply_.has_value(); });
  ASSERT_OK(*reply_);
  EXPECT_EQ(std::get<GpuNotice::MintedId>((*reply_)->result).id, "id");
}

TEST_F(GpuConnectionTest, ARefusalComesWithTheNameOfTheGpu) {
  SayHello();
  Call();
  Say(GpuNotice::Answer{.request = requests_[1].id, .status = absl::NotFoundError("arena 3")});
  RunUntil([&] { return reply_.has_value(); });
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
  Say(GpuNotice::LastWords{.cause = absl::InternalError("CUDA_ERROR_ILLEGAL_ADDRESS")});
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
  const std::string hello = Encode({.body = GpuNotice::Hello{.preflight = {.rank = kRank}}});
  ASSERT_OK(process_->Send(hello.substr(0, hello.size() / 2)));
  ExpectLost(absl::StatusCode::kInvalidArgument, "expected a notice");
}

TEST_F(GpuConnectionTest, TheFirstNoticeIsAHello) {
  Say(GpuNotice::Answer{.request = 1});
  ExpectLost(absl::StatusCode::kInvalidArgument, "expected a hello, found another");
}

TEST_F(GpuConnectionTest, ThereIsOneHello) {
  SayHello();
  Say(GpuNotice::Hello{.preflight = {.rank = kRank}});
  ExpectLost(absl::StatusCode::kInvalidArgument, "expected one hello");
  EXPECT_EQ(hellos_, 1);
}

TEST_F(GpuConnectionTest, AnotherProtocolIsToldWithBothVersions) {
  Say(GpuNotice::Hello{.protocol = 99, .preflight = {.rank = kRank}});
  ExpectLost(absl::StatusCode::kFailedPrecondition,
             absl::StrCat("expected version ", kGpuProtocol, ", found 99"));
}

TEST_F(GpuConnectionTest, AnotherGpuIsNotTaken) {
  Say(GpuNotice::Hello{.preflight = {.rank = {.gpu = "GPU-b", .incarnation = 7}}});
  ExpectLost(absl::StatusCode::kInvalidArgument, "expected GPU-a#7, found GPU-b#7");
}

TEST_F(GpuConnectionTest, AnAnswerToNothingIsNotTaken) {
  SayHello();
  Say(GpuNotice::Answer{.request = 77});
  ExpectLost(absl::StatusCode::kInvalidArgument, "request 77, which is not open");
}

TEST_F(GpuConnectionTest, ASecondAnswerIsNotTaken) {
  SayHello();
  Call();
  const GpuNotice::Answer answer = {.request = requests_[1].id, .result = GpuNotice::MintedId()};
  Say(answer);
  Say(answer);
  ExpectLost(absl::StatusCode::kInvalidArgument, "which is not open");
}

TEST_F(GpuConnectionTest, AnAnswerOfAnotherKindIsNotTaken) {
  SayHello();
  Call();
  Say(GpuNotice::Answer{.request = requests_[1].id, .result = TaskReport()});
  ExpectLost(absl::StatusCode::kInvalidArgument,
             "an answer to MintCommunicatorId: expected result 1 without a descriptor, found "
             "result 3 without one");
  EXPECT_THAT(*reply_, StatusIs(absl::StatusCode::kUnavailable));
}

TEST_F(GpuConnectionTest, AnArenaWithoutItsDescriptorIsNotTaken) {
  SayHello();
  connection_->Call(GpuRequest::CreateArena{.arena = ArenaId(1), .bytes = ByteCount(1)}, UniqueFd(),
                    absl::Seconds(30), [this](auto reply) { reply_.emplace(std::move(reply)); });
  RunUntil([&] { return requests_.size() == 2; });
  Say(GpuNotice::Answer{.request = requests_[1].id});
  ExpectLost(absl::StatusCode::kInvalidArgument, "expected result 0 with a descriptor");
}

TEST_F(GpuConnectionTest, PingsFollowEachOther) {
  SayHello();
  ASSERT_THAT(requests_, SizeIs(1));
  EXPECT_TRUE(std::holds_alternative<GpuRequest::Ping>(requests_[0].body));
  Say(GpuNotice::Answer{.request = requests_[0].id});
  while (loop_->RunOnce(absl::ZeroDuration()) > 0) {
  }
  clock_.Advance(absl::Seconds(1));
  RunUntil([&] { return requests_.size() == 2; });
  clock_.Advance(absl::Seconds(20));
  ExpectLost(absl::StatusCode::kDeadlineExceeded, "did not answer Ping within 20s");
}

}  // namespace
}  // namespace crossmesh

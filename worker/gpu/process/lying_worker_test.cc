// The process of a GPU, with a worker that a test plays, and that lies.

#include "common/base/clock.h"
#include "common/event_loop/event_loop.h"
#include "common/testing/paths.h"
#include "common/testing/status_matchers.h"
#include "tests/standin/stand_in.h"
#include "worker/gpu/process/gpu_child.h"
#include "worker/gpu/process/testing/gpu_process_fixture.h"
#include "worker/gpu/protocol/gpu_message_codec.h"
#include "worker/gpu/protocol/message_socket.h"

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include <absl/strings/str_cat.h>
#include <absl/time/time.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::HasSubstr;

class LyingWorkerTest : public testing::Test, private MessageSocket::Sink {
 protected:
  void SetUp() override {
    ASSERT_OK_AND_ASSIGN(auto ends, MessageSocket::MakePair());
    ASSERT_OK_AND_ASSIGN(socket_, MessageSocket::Create(std::move(ends.first), *this));
    ASSERT_OK_AND_ASSIGN(
        child_,
        GpuChild::Start(
            {.program = ProgramPath("crossmesh-gpu"),
             .arguments = {"--gpu", StandInUuid(0), "--incarnation", "1", "--staging-bytes",
                           absl::StrCat(1 << 20), "--driver-library", StandInDriverPath(),
                           "--nccl-library", StandInNcclPath()},
             .environment = {absl::StrCat("CROSSMESH_STANDIN_KERNELS=", StandInKernelsPath())}},
            std::move(ends.second), [this](const std::string& how) { exit_ = how; }));
    loop_->AddSource(*socket_);
    loop_->AddSource(*child_);
    ASSERT_TRUE(std::holds_alternative<GpuNotice::Hello>(Next().body));
  }
  void TearDown() override {
    loop_->RemoveSource(*socket_);
    loop_->RemoveSource(*child_);
  }

  GpuNotice Next() {
    while (notices_.empty() && !exit_.has_value()) loop_->RunOnce(absl::Seconds(1));
    if (notices_.empty()) return {GpuNotice::LastWords{absl::UnknownError("it said nothing")}};
    GpuNotice notice = std::move(notices_.front());
    notices_.pop_front();
    return notice;
  }
  absl::Status Ask(GpuRequest::Body body) {
    EXPECT_OK(socket_->Send(Encode({.id = ++last_id_, .body = std::move(body)})));
    const GpuNotice notice = Next();
    const auto* answer = std::get_if<GpuNotice::Answer>(&notice.body);
    return answer == nullptr ? absl::UnknownError("no answer") : answer->status;
  }
  // The process says that this was wrong, and ends.
  void ExpectLastWords(const std::string& text) {
    const GpuNotice notice = Next();
    const auto* words = std::get_if<GpuNotice::LastWords>(&notice.body);
    ASSERT_NE(words, nullptr);
    EXPECT_THAT(words->cause, StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(text)));
    while (!exit_.has_value()) loop_->RunOnce(absl::Seconds(1));
    EXPECT_EQ(*exit_, "exit status 70");
  }

  const RealClock clock_{};
  std::unique_ptr<EventLoop> loop_ = *EventLoop::Create(clock_, {});
  std::unique_ptr<MessageSocket> socket_;
  std::unique_ptr<GpuChild> child_;
  std::optional<std::string> exit_;
  uint64_t last_id_ = 0;

 private:
  void OnMessage(std::string bytes, UniqueFd /*descriptor*/) override {
    ASSERT_OK_AND_ASSIGN(GpuNotice notice, DecodeGpuNotice(bytes));
    notices_.push_back(std::move(notice));
  }
  void OnClosed(const absl::Status& /*why*/) override {}

  std::deque<GpuNotice> notices_;
};

TEST_F(LyingWorkerTest, BytesThatAreNoRequestEndTheProcess) {
  ASSERT_OK(socket_->Send("no request"));
  ExpectLastWords("expected a request");
}

TEST_F(LyingWorkerTest, ARequestThatIsCutEndsTheProcess) {
  const std::string request =
      Encode({.id = 1, .body = GpuRequest::PreparePart{.part = std::string(100'000, 'x')}});
  ASSERT_OK(socket_->Send(request.substr(0, 50'000)));
  ExpectLastWords("expected a request");
}

TEST_F(LyingWorkerTest, WhatCannotBeDoneIsRefusedAndTheProcessGoesOn) {
  EXPECT_THAT(Ask(GpuRequest::ImportArena{.arena = ArenaId(1), .bytes = ByteCount(1)}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("found none")));
  EXPECT_THAT(Ask(GpuRequest::ReleaseArena{.arena = ArenaId(1)}),
              StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(Ask(GpuRequest::PreparePart{.part = "no part"}),
              StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(Ask(GpuRequest::RunTask{.communicator = {.ranks = {{"GPU-a", 1}}, .purpose = "relay"},
                                      .devices = {0},
                                      .deadline = absl::Seconds(1),
                                      .stall_limit = absl::Seconds(1)}),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("part")));
  EXPECT_OK(Ask(GpuRequest::Ping()));
}

TEST_F(LyingWorkerTest, ADescriptorThatIsNoMemoryOfAGpuIsRefused) {
  ASSERT_OK_AND_ASSIGN(auto ends, MessageSocket::MakePair());
  ASSERT_OK(socket_->Send(
      Encode({.id = 1,
              .body = GpuRequest::ImportArena{.arena = ArenaId(1), .bytes = ByteCount(1 << 20)}}),
      std::move(ends.first)));
  const GpuNotice notice = Next();
  EXPECT_THAT(std::get<GpuNotice::Answer>(notice.body).status,
              StatusIs(absl::StatusCode::kInvalidArgument));
}

}  // namespace
}  // namespace crossmesh

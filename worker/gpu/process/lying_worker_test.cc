// The process of a GPU, with a worker that a test plays, and that lies.

#include "common/base/clock.h"
#include "common/event_loop/event_loop.h"
#include "common/testing/paths.h"
#include "common/testing/status_matchers.h"
#include "tests/standin/stand_in.h"
#include "worker/gpu/process/child_environment.h"
#include "worker/gpu/process/gpu_child.h"
#include "worker/gpu/process/testing/gpu_process_fixture.h"
#include "worker/gpu/protocol/gpu_message.h"
#include "worker/gpu/protocol/message_socket.h"
#include "worker/gpu/protocol/testing/gpu_requests_of_tests.h"
#include "worker/gpu/protocol/testing/run_until.h"

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <absl/strings/str_cat.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

namespace crossmesh {
namespace {

using ::testing::HasSubstr;

class LyingWorkerTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_OK_AND_ASSIGN(auto ends, MessageSocket::MakePair());
    ASSERT_OK_AND_ASSIGN(
        socket_, MessageSocket::Create(
                     std::move(ends.first),
                     {.on_message =
                          [this](const std::string& bytes, UniqueFd /*descriptor*/) {
                            ASSERT_OK_AND_ASSIGN(notices_.emplace_back(), ParseGpuNotice(bytes));
                          },
                      .on_closed = [](const absl::Status& /*why*/) {}}));
    ASSERT_OK_AND_ASSIGN(
        child_,
        GpuChild::Start(
            {.program = ProgramPath("crossmesh-gpu"),
             .arguments = {"--gpu", StandInUuid(0), "--incarnation", "1", "--staging-bytes",
                           absl::StrCat(1 << 20), "--driver-library", StandInDriverPath(),
                           "--nccl-library", StandInNcclPath()},
             .environment = ChildEnvironment(
                 {absl::StrCat("CROSSMESH_STANDIN_KERNELS=", StandInKernelsPath())}, environ)},
            std::move(ends.second), [this](const std::string& how) { exit_ = how; }));
    loop_->AddSource(*socket_);
    loop_->AddSource(*child_);
    ASSERT_TRUE(Next().has_hello());
  }
  void TearDown() override {
    loop_->RemoveSource(*socket_);
    loop_->RemoveSource(*child_);
  }

  // None when the process has ended without another one.
  v1::GpuNotice Next() {
    RunUntil(*loop_, [this] { return !notices_.empty() || exit_.has_value(); });
    if (notices_.empty()) return {};
    v1::GpuNotice notice = std::move(notices_.front());
    notices_.pop_front();
    return notice;
  }
  absl::Status Ask(v1::GpuRequest request, UniqueFd descriptor = UniqueFd()) {
    request.set_id(++last_id_);
    EXPECT_OK(socket_->Send(request.SerializeAsString(), std::move(descriptor)));
    const v1::GpuNotice notice = Next();
    if (!notice.has_answer()) return absl::UnknownError("no answer");
    return FromProto(notice.answer().status());
  }
  // The process says that this was wrong, and ends.
  void ExpectLastWords(const std::string& text) {
    const v1::GpuNotice notice = Next();
    ASSERT_TRUE(notice.has_last_words());
    EXPECT_THAT(FromProto(notice.last_words().cause()),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(text)));
    RunUntil(*loop_, [this] { return exit_.has_value(); });
    EXPECT_EQ(*exit_, "exit status 70");
  }
  static v1::GpuRequest ImportOf(uint64_t arena, int64_t bytes) {
    v1::GpuRequest request;
    request.mutable_import_arena()->set_arena(arena);
    request.mutable_import_arena()->set_size_bytes(bytes);
    return request;
  }

  const RealClock clock_{};
  std::unique_ptr<EventLoop> loop_ = *EventLoop::Create(clock_, {});
  std::unique_ptr<MessageSocket> socket_;
  std::unique_ptr<GpuChild> child_;
  std::optional<std::string> exit_;
  uint64_t last_id_ = 0;

  std::deque<v1::GpuNotice> notices_;
};

TEST_F(LyingWorkerTest, BytesThatAreNoRequestEndTheProcess) {
  ASSERT_OK(socket_->Send("no request"));
  ExpectLastWords("expected a request");
}

TEST_F(LyingWorkerTest, ARequestThatIsCutEndsTheProcess) {
  v1::GpuRequest request;
  request.set_id(1);
  request.mutable_run_task()->set_part(std::string(100'000, 'x'));
  ASSERT_OK(socket_->Send(request.SerializeAsString().substr(0, 50'000)));
  ExpectLastWords("expected a request");
}

TEST_F(LyingWorkerTest, ARequestWithoutAnIdEndsTheProcess) {
  ASSERT_OK(socket_->Send(PingRequest().SerializeAsString()));
  ExpectLastWords("id of a GPU message");
}

TEST_F(LyingWorkerTest, WhatCannotBeDoneIsRefusedAndTheProcessGoesOn) {
  const auto refused = [](absl::string_view text) {
    return StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(std::string(text)));
  };
  EXPECT_THAT(Ask(ImportOf(1, 1)), refused("a descriptor or an IPC handle, found none"));
  v1::GpuRequest handle = ImportOf(1, 1);
  handle.mutable_import_arena()->set_ipc_handle("short");
  EXPECT_THAT(Ask(handle), refused("an IPC handle: expected 64 bytes, found 5"));
  EXPECT_THAT(Ask(ImportOf(0, 1)), refused("arena of a GPU message"));
  EXPECT_THAT(Ask(ImportOf(1, -1)), refused("expected at least 0, found -1"));
  v1::GpuRequest request;
  request.mutable_release_arena()->set_arena(1);
  EXPECT_THAT(Ask(request), StatusIs(absl::StatusCode::kNotFound));
  request.mutable_create_arena()->set_size_bytes(1);
  EXPECT_THAT(Ask(request), refused("arena of a GPU message"));
  request.mutable_run_task()->set_part("no part");
  EXPECT_THAT(Ask(request), refused("run_task.part_digest"));
  request.mutable_run_task()->set_part_digest(std::string(32, '0'));
  EXPECT_THAT(Ask(request), refused("part 0000"));
  const CommunicatorKey key = {.ranks = {{"GPU-a", 1}}, .purpose = "relay", .epoch = 1};
  EXPECT_THAT(Ask(CreateCommunicatorRequest({.key = key, .ticket = 0}, "id")), refused("ticket"));
  EXPECT_THAT(Ask(CreateCommunicatorRequest({.key = key, .timeout = {}}, "id")),
              refused("create_communicator.timeout"));
  EXPECT_THAT(Ask(DestroyCommunicatorRequest({.key = key, .timeout = {}})),
              refused("destroy_communicator.timeout"));
  EXPECT_THAT(Ask(StopCommunicatorRequest({.purpose = "relay"}, "")),
              refused("communicator.ranks"));
  EXPECT_OK(Ask(PingRequest()));
}

TEST_F(LyingWorkerTest, ADescriptorThatIsNoMemoryOfAGpuIsRefused) {
  ASSERT_OK_AND_ASSIGN(auto ends, MessageSocket::MakePair());
  EXPECT_THAT(Ask(ImportOf(1, 1 << 20), std::move(ends.first)),
              StatusIs(absl::StatusCode::kInvalidArgument));
}

}  // namespace
}  // namespace crossmesh

#include "worker/gpu/protocol/message_socket.h"

#include "common/base/clock.h"
#include "common/base/sealed_file.h"
#include "common/event_loop/event_loop.h"
#include "common/testing/status_matchers.h"
#include "worker/gpu/protocol/testing/run_until.h"

#include <array>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <absl/time/time.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

namespace crossmesh {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

struct Received {
  MessageSocket::Handlers handlers() {
    return {.on_message =
                [this](std::string bytes, UniqueFd descriptor) {
                  messages.push_back(std::move(bytes));
                  descriptors.push_back(std::move(descriptor));
                },
            .on_closed = [this](const absl::Status& why) { closed = why; }};
  }

  std::vector<std::string> messages;
  std::vector<UniqueFd> descriptors;
  std::optional<absl::Status> closed;
};

// A socket on a loop, and the other end as the system has it.
class MessageSocketTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_OK_AND_ASSIGN(auto ends, MessageSocket::MakePair());
    ASSERT_OK_AND_ASSIGN(socket_,
                         MessageSocket::Create(std::move(ends.first), received_.handlers()));
    other_ = std::move(ends.second);
    loop_->AddSource(*socket_);
  }
  void TearDown() override { loop_->RemoveSource(*socket_); }

  // A socket of ours at the other end.
  void Join() {
    ASSERT_OK_AND_ASSIGN(peer_, MessageSocket::Create(std::move(other_), from_socket_.handlers()));
  }

  // A datagram that a MessageSocket would not send.
  void SendRaw(const std::string& bytes, const std::vector<int>& descriptors) {
    iovec payload = {.iov_base = const_cast<char*>(bytes.data()), .iov_len = bytes.size()};
    alignas(cmsghdr) std::array<char, CMSG_SPACE(8 * sizeof(int))> control{};
    msghdr message = {};
    message.msg_iov = &payload;
    message.msg_iovlen = 1;
    if (!descriptors.empty()) {
      message.msg_control = control.data();
      message.msg_controllen = CMSG_SPACE(descriptors.size() * sizeof(int));
      cmsghdr* header = CMSG_FIRSTHDR(&message);
      header->cmsg_level = SOL_SOCKET;
      header->cmsg_type = SCM_RIGHTS;
      header->cmsg_len = CMSG_LEN(descriptors.size() * sizeof(int));
      std::memcpy(CMSG_DATA(header), descriptors.data(), descriptors.size() * sizeof(int));
    }
    ASSERT_EQ(sendmsg(other_.get(), &message, 0), std::ssize(bytes));
  }
  void ExpectRefused(const std::string& text) {
    RunUntil(*loop_, [&] { return received_.closed.has_value(); });
    EXPECT_THAT(*received_.closed, StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(text)));
    EXPECT_THAT(received_.messages, SizeIs(0));
  }

  const RealClock clock_{};
  std::unique_ptr<EventLoop> loop_ = *EventLoop::Create(clock_, {});
  Received received_;
  std::unique_ptr<MessageSocket> socket_;
  UniqueFd other_;
  Received from_socket_;
  std::unique_ptr<MessageSocket> peer_;
};

TEST_F(MessageSocketTest, MessagesOfAnySizeComeInOrder) {
  Join();
  for (const size_t size : {size_t{1}, size_t{16383}, size_t{16384}, size_t{2} << 20}) {
    ASSERT_OK(peer_->Send(std::string(size, static_cast<char>('a' + size % 7))));
  }
  RunUntil(*loop_, [&] { return received_.messages.size() == 4; });
  EXPECT_EQ(received_.messages[1], std::string(16383, static_cast<char>('a' + 16383 % 7)));
  EXPECT_EQ(received_.messages[2].size(), 16384U);
  EXPECT_EQ(received_.messages[3].size(), size_t{2} << 20);
  EXPECT_FALSE(received_.descriptors[3].valid()) << "the file is not the message's";
}

TEST_F(MessageSocketTest, ADescriptorComesWithItsMessageSmallOrLarge) {
  Join();
  for (const size_t size : {size_t{1}, size_t{1} << 20}) {
    ASSERT_OK_AND_ASSIGN(UniqueFd file, MakeSealedFile("content"));
    ASSERT_OK(peer_->Send(std::string(size, 'x'), std::move(file)));
  }
  RunUntil(*loop_, [&] { return received_.messages.size() == 2; });
  for (const UniqueFd& descriptor : received_.descriptors) {
    EXPECT_THAT(ReadSealedFile(descriptor.get(), 100), IsOkAndHolds("content"));
    EXPECT_NE(fcntl(descriptor.get(), F_GETFD) & FD_CLOEXEC, 0);
  }
}

TEST_F(MessageSocketTest, WhatTheOtherEndDoesNotTakeWaitsUpToABound) {
  Join();
  const std::string message(1000, 'x');
  size_t sent = 0;
  while (socket_->Send(message).ok()) ++sent;
  EXPECT_GT(sent, MessageSocket::kWaitingMax);
  EXPECT_THAT(socket_->Send(message), StatusIs(absl::StatusCode::kResourceExhausted));
  loop_->AddSource(*peer_);
  RunUntil(*loop_, [&] { return from_socket_.messages.size() == sent; });
  loop_->RemoveSource(*peer_);
  EXPECT_OK(socket_->Send(message));
}

TEST_F(MessageSocketTest, AMessageThatIsTooLargeIsNotSent) {
  EXPECT_THAT(socket_->Send(std::string(MessageSocket::kMessageBytesMax + 1, 'x')),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("8388609 bytes")));
}

TEST_F(MessageSocketTest, TheEndOfTheOtherIsToldOnceAfterItsMessages) {
  Join();
  ASSERT_OK(peer_->Send("last"));
  peer_.reset();
  RunUntil(*loop_, [&] { return received_.closed.has_value(); });
  EXPECT_THAT(received_.messages, SizeIs(1));
  EXPECT_THAT(*received_.closed, StatusIs(absl::StatusCode::kUnavailable));
  received_.closed.reset();
  EXPECT_EQ(loop_->RunOnce(absl::ZeroDuration()), 0);
  EXPECT_OK(socket_->Send("into the void"));
  EXPECT_FALSE(received_.closed.has_value());
}

TEST_F(MessageSocketTest, ADatagramThatIsTooLongIsRefused) {
  SendRaw(std::string(MessageSocket::kDatagramBytesMax + 1, '\0'), {});
  ExpectRefused("expected at most 16384 bytes");
}

TEST_F(MessageSocketTest, MoreDescriptorsThanAMessageHasAreRefused) {
  SendRaw(std::string("\0x", 2), {0, 0, 0});
  ExpectRefused("2 descriptors, found more");
}

TEST_F(MessageSocketTest, TwoDescriptorsWithoutAFileAreRefused) {
  SendRaw(std::string("\0x", 2), {0, 0});
  ExpectRefused("form 0 with 2 bytes and 2 descriptors");
}

TEST_F(MessageSocketTest, AnUnknownFormIsRefused) {
  SendRaw("\7x", {});
  ExpectRefused("form 7");
}

TEST_F(MessageSocketTest, AFileThatDidNotComeIsRefused) {
  SendRaw("\1", {});
  ExpectRefused("form 1 with 1 bytes and 0 descriptors");
}

TEST_F(MessageSocketTest, AFileThatCanStillChangeIsRefused) {
  const UniqueFd file(memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  SendRaw("\1", {file.get()});
  ExpectRefused("expected a sealed one");
}

TEST_F(MessageSocketTest, AFileThatIsTooLargeIsRefused) {
  const UniqueFd file(memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(ftruncate(file.get(), MessageSocket::kMessageBytesMax + 1), 0);
  ASSERT_EQ(fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE), 0);
  SendRaw("\1", {file.get()});
  ExpectRefused("a message of 8388609 bytes");
}

}  // namespace
}  // namespace crossmesh

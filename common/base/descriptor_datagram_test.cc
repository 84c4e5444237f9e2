#include "common/base/descriptor_datagram.h"

#include <array>
#include <cerrno>
#include <string>
#include <vector>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

namespace crossmesh {
namespace {

class DescriptorDatagramTest : public testing::Test {
 protected:
  void SetUp() override {
    int ends[2] = {};
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    here_.Reset(ends[0]);
    there_.Reset(ends[1]);
    int pipe_ends[2] = {};
    ASSERT_EQ(pipe2(pipe_ends, O_CLOEXEC), 0);
    reader_.Reset(pipe_ends[0]);
    writer_.Reset(pipe_ends[1]);
  }

  // Whether it is the same open file.
  static bool IsSame(const UniqueFd& one, const UniqueFd& other) {
    struct stat a = {};
    struct stat b = {};
    EXPECT_EQ(fstat(one.get(), &a), 0);
    EXPECT_EQ(fstat(other.get(), &b), 0);
    return a.st_ino == b.st_ino && fcntl(one.get(), F_GETFL) == fcntl(other.get(), F_GETFL);
  }
  // Once no end for writing is open, reading finds the end.
  bool IsWriterGone() {
    writer_.Reset();
    char byte = 0;
    fcntl(reader_.get(), F_SETFL, O_NONBLOCK);
    return read(reader_.get(), &byte, 1) == 0;
  }

  UniqueFd here_;
  UniqueFd there_;
  UniqueFd reader_;
  UniqueFd writer_;
  std::array<char, 16> bytes_{};
};

TEST_F(DescriptorDatagramTest, BytesAndDescriptorsArriveInTheirOrder) {
  const std::array descriptors = {writer_.get(), reader_.get()};
  ASSERT_EQ(SendDatagram(here_.get(), "hello", descriptors), 5);
  const ReceivedDatagram received = ReceiveDatagram(there_.get(), bytes_);
  ASSERT_EQ(received.size, 5);
  EXPECT_EQ(std::string(bytes_.data(), 5), "hello");
  EXPECT_FALSE(received.is_cut);
  ASSERT_EQ(received.descriptors.size(), 2U);
  EXPECT_TRUE(IsSame(received.descriptors[0], writer_));
  EXPECT_TRUE(IsSame(received.descriptors[1], reader_));
  EXPECT_EQ(fcntl(received.descriptors[0].get(), F_GETFD), FD_CLOEXEC);
}

TEST_F(DescriptorDatagramTest, ADatagramMayHaveNoDescriptor) {
  ASSERT_EQ(SendDatagram(here_.get(), "hello", {}), 5);
  ReceivedDatagram received = ReceiveDatagram(there_.get(), bytes_);
  EXPECT_TRUE(received.descriptors.empty());
  EXPECT_FALSE(received.TakeDescriptor().valid());
}

TEST_F(DescriptorDatagramTest, TheDescriptorsThatNothingTakesAreClosed) {
  const std::array descriptors = {reader_.get(), writer_.get()};
  ASSERT_EQ(SendDatagram(here_.get(), "hello", descriptors), 5);
  ReceivedDatagram received = ReceiveDatagram(there_.get(), bytes_);
  const UniqueFd taken = received.TakeDescriptor();
  EXPECT_TRUE(IsSame(taken, reader_));
  EXPECT_TRUE(IsWriterGone());
}

TEST_F(DescriptorDatagramTest, BytesWithoutRoomAreTold) {
  ASSERT_EQ(SendDatagram(here_.get(), std::string(17, 'x'), {}), 17);
  const ReceivedDatagram received = ReceiveDatagram(there_.get(), bytes_, MSG_TRUNC);
  EXPECT_EQ(received.size, 17);
  EXPECT_TRUE(received.is_cut);
}

TEST_F(DescriptorDatagramTest, WhatFailsIsAsSendmsgAndRecvmsgSay) {
  EXPECT_EQ(ReceiveDatagram(there_.get(), bytes_, MSG_DONTWAIT).size, -1);
  EXPECT_EQ(errno, EAGAIN);
  there_.Reset();
  // And no signal.
  EXPECT_EQ(SendDatagram(here_.get(), "hello", {}), -1);
  EXPECT_EQ(errno, EPIPE);
}

}  // namespace
}  // namespace crossmesh

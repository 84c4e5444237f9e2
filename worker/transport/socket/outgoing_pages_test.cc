#include "common/testing/status_matchers.h"
#include "worker/transport/socket/outgoing_stream.h"
#include "worker/transport/socket/testing/outgoing_stream_fixture.h"
#include "worker/transport/socket/testing/refused_calls.h"
#include "worker/transport/socket/testing/tcp_pair.h"
#include "worker/transport/testing/sealed_memory.h"

#include <array>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/syscall.h>

namespace crossmesh {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr size_t kPiece = 64 << 10;  // the shortest of which pages are given

// Payloads that lie in a region, without shared memory.
class OutgoingPagesTest : public OutgoingStreamTest {
 protected:
  OutgoingPagesTest() {
    for (size_t i = 0; i < memory_->bytes().size(); ++i) {
      memory_->bytes()[i] = static_cast<std::byte>(i % 251);
    }
    regions_.Add(memory_->lent());
    Renew(/*shared_memory=*/false, Reach::kInsideHost);
  }

  iovec Lent(size_t offset, size_t bytes) const {
    return PieceOf(memory_->bytes().subspan(offset, bytes));
  }
  std::string Bytes(size_t offset, size_t bytes) const {
    return {reinterpret_cast<const char*>(memory_->bytes().data()) + offset, bytes};
  }
  void Take(uint64_t id) {
    Answer({.kind = FrameKind::kTake, .pieces = FrameHeader::kSayDone, .id = id});
  }
  static std::string PagesHeader(uint64_t id) {
    return BytesOfObject(
        FrameHeader{.kind = FrameKind::kPayload, .pieces = FrameHeader::kSayDone, .id = id});
  }

  const std::unique_ptr<SealedMemory> memory_ = SealedMemory::Create(4 * kPiece);
};

TEST_F(OutgoingPagesTest, APayloadWhosePagesAreGivenIsSentWhenTheOtherSideHasIt) {
  Send(1, {Lent(100, kPiece + 1)});
  EXPECT_EQ(Written(), Announcement(0, 1, kPiece + 1));
  Take(0);
  EXPECT_EQ(Written(), PagesHeader(0) + Bytes(100, kPiece + 1));
  EXPECT_THAT(Events(), IsEmpty());
  EXPECT_THAT(work_list_, IsEmpty());
  Answer(FrameKind::kDone, 0);
  EXPECT_THAT(Events(), ElementsAre("sent 1 OK"));
}

TEST_F(OutgoingPagesTest, TheNextPayloadDoesNotWaitForThat) {
  Send(1, {Lent(0, kPiece)});
  Send(2, {Lent(kPiece, kPiece)});
  SendBytes(3, std::string(kLarge, 'x'));
  Written();
  for (const uint64_t id : {0, 1}) Take(id);
  Answer(FrameKind::kTake, 2);
  EXPECT_EQ(Written(),
            absl::StrCat(PagesHeader(0), Bytes(0, kPiece), PagesHeader(1), Bytes(kPiece, kPiece),
                         PayloadHeader(2), std::string(kLarge, 'x')));
  EXPECT_THAT(Events(), ElementsAre("sent 3 OK"));
  Answer(FrameKind::kDone, 1);
  Answer(FrameKind::kDone, 0);
  EXPECT_THAT(Events(), ElementsAre("sent 2 OK", "sent 1 OK"));
}

TEST_F(OutgoingPagesTest, SeveralPiecesGoOneAfterTheOtherAndAsFarAsMayBe) {
  Send(1, {Lent(2 * kPiece + 3, kPiece + 7), Lent(1, kPiece)});
  Written();
  Take(0);
  const std::string all = Bytes(2 * kPiece + 3, kPiece + 7) + Bytes(1, kPiece);
  std::string written;
  while (!work_list_.empty()) written += Written(1000);
  EXPECT_EQ(written, PagesHeader(0) + all);
}

TEST_F(OutgoingPagesTest, PagesWaitForTheSocket) {
  StreamPeer::LimitBytesOnTheWay(stream_->fd());
  Send(1, {Lent(5, 3 * kPiece)});
  Written();
  Take(0);
  std::string written = Written();
  for (int i = 0; stream_->blocked() && i < 10'000; ++i) {
    stream_->Unblock();
    written += Written();
  }
  EXPECT_EQ(written, PagesHeader(0) + Bytes(5, 3 * kPiece));
}

TEST_F(OutgoingPagesTest, AllElseIsCopied) {
  struct Case {
    std::vector<iovec> payload;
    std::string bytes;
    uint32_t pieces = FrameHeader::kSayDone;  // of the answer
    Reach reach = Reach::kInsideHost;
  };
  const std::string elsewhere(kPiece, 'x');
  const std::vector<Case> cases = {
      // Of a worker that does not know how to say it.
      {{Lent(0, kPiece)}, Bytes(0, kPiece), 0},
      {{Lent(0, kPiece)}, Bytes(0, kPiece), 2},
      {{Lent(0, kPiece)}, Bytes(0, kPiece), FrameHeader::kSayDone, Reach::kBetweenHosts},
      {{Lent(0, kPiece - 1)}, Bytes(0, kPiece - 1)},
      {{Lent(0, kPiece), Lent(kPiece, kPiece - 1)}, Bytes(0, 2 * kPiece - 1)},
      {{Piece(elsewhere)}, elsewhere},
      {{Lent(0, kPiece), Piece(elsewhere)}, Bytes(0, kPiece) + elsewhere}};
  for (const Case& one : cases) {
    Renew(/*shared_memory=*/false, one.reach);
    Send(1, one.payload);
    Written();
    Answer({.kind = FrameKind::kTake, .pieces = one.pieces, .id = 0});
    EXPECT_EQ(Written(), PayloadHeader(0) + one.bytes);
    EXPECT_THAT(Events(), ElementsAre("sent 1 OK"));
  }
}

TEST_F(OutgoingPagesTest, ASystemThatTakesNoPagesIsGivenCopies) {
  Send(1, {Lent(0, kPiece)});
  Send(2, {Lent(kPiece, kPiece)});
  Written();
  for (const uint64_t id : {0, 1}) Take(id);
  RunRefused(SYS_sendfile, EINVAL, [this] {
    // The first one's header has gone before that was known.
    EXPECT_EQ(Written(), absl::StrCat(PagesHeader(0), Bytes(0, kPiece), PayloadHeader(1),
                                      Bytes(kPiece, kPiece)));
  });
  EXPECT_THAT(Events(), ElementsAre("sent 2 OK"));
  Answer(FrameKind::kDone, 0);
  EXPECT_THAT(Events(), ElementsAre("sent 1 OK"));
}

TEST_F(OutgoingPagesTest, OfWhatIsReadAlreadyNothingIsSaidTwice) {
  const std::string refused = "answer: expected the id of a message without answer, found 0";
  for (const FrameKind second : {FrameKind::kTake, FrameKind::kDone}) {
    Renew(/*shared_memory=*/false, Reach::kInsideHost);
    Send(1, {Lent(0, kPiece)});
    Written();
    Take(0);
    Written(1000);
    peer_.Send(BytesOfObject(FrameHeader{.kind = second}));
    EXPECT_THAT(stream_->Read(kMuch), StatusIs(absl::StatusCode::kInvalidArgument, refused));
  }
  Renew(/*shared_memory=*/false, Reach::kInsideHost);
  Send(1, {Lent(0, kPiece)});
  Written();
  Take(0);
  Written();
  peer_.Send(BytesOfObject(FrameHeader{.kind = FrameKind::kTake}));
  EXPECT_THAT(stream_->Read(kMuch), StatusIs(absl::StatusCode::kInvalidArgument, refused));
}

TEST_F(OutgoingPagesTest, AnEndCompletesWhatIsNotReadYet) {
  Send(1, {Lent(0, kPiece)});
  Written();
  Take(0);
  Written();
  stream_->End(absl::CancelledError("ended"));
  EXPECT_THAT(Events(), ElementsAre("sent 1 CANCELLED"));
}

// No signal comes, which would end the process, and none is left to come.
void ExpectNoSignal() {
  sigset_t set;
  ASSERT_EQ(sigpending(&set), 0);
  EXPECT_EQ(sigismember(&set, SIGPIPE), 0);
  ASSERT_EQ(pthread_sigmask(SIG_SETMASK, nullptr, &set), 0);
  EXPECT_EQ(sigismember(&set, SIGPIPE), 0);
}

TEST_F(OutgoingPagesTest, TheEndOfTheOtherSideIsAnErrorAndNoMore) {
  Send(1, {Lent(0, 2 * kPiece)});
  Written();
  Take(0);
  Written(kPiece);
  peer_.Close();
  EXPECT_THAT(Work(kMuch), StatusIs(absl::StatusCode::kUnavailable, HasSubstr("sending: ")));
  ExpectNoSignal();
}

// By TCP the first of the pages find out: the system tells of these, and raises the signal at once.
TEST_F(OutgoingPagesTest, TheEndOfTheOtherSideWhilePagesGoIsTheSame) {
  const IpEndpoint loopback = {.ip = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, '\xff', '\xff', 127, 0, 0, 1}};
  TcpPair pair(loopback, loopback);
  OutgoingStream stream(std::move(pair.connected), Reach::kInsideHost, {},
                        {.regions = regions_, .work_list = work_list_, .told = told_});
  const iovec payload = Lent(0, 4 * kPiece);
  stream.Send({}, std::span(&payload, 1), 1);
  ASSERT_OK(stream.Work(kMuch));
  // What is not read would be told before the first page.
  std::array<char, 4096> announcement;
  ASSERT_GT(recv(pair.accepted.get(), announcement.data(), announcement.size(), 0), 0);
  const FrameHeader take = {.kind = FrameKind::kTake, .pieces = FrameHeader::kSayDone};
  ASSERT_EQ(send(pair.accepted.get(), &take, sizeof(take), 0), sizeof(take));
  ASSERT_OK(stream.Read(kMuch));
  pair.accepted.Reset();
  absl::Status status = stream.Work(kMuch);
  ExpectNoSignal();
  while (status.ok()) {
    stream.Unblock();
    status = stream.Work(kMuch);
  }
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kUnavailable, HasSubstr("sending: ")));
  ExpectNoSignal();
  stream.End(status);
  work_list_.clear();
}

}  // namespace
}  // namespace crossmesh

// What one step of a SocketTransport does, and no other.

#include "common/testing/status_matchers.h"
#include "worker/transport/socket/socket_transport.h"
#include "worker/transport/socket/testing/driven_transport.h"
#include "worker/transport/socket/testing/refused_calls.h"
#include "worker/transport/testing/sealed_memory.h"

#include <cerrno>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/syscall.h>

namespace crossmesh {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::MatchesRegex;

constexpr size_t kLargeMessage = 5000;  // more than is sent with its announcement

// A connection from one to the other that has said what it is.
PeerId Join(DrivenTransport& from, DrivenTransport& to) {
  const PeerId peer = from.ConnectTo(to);
  const size_t before = to.sink.messages.size();
  from.Send(peer, 99, "");
  EXPECT_TRUE(DrivenTransport::Run(
      {&from, &to}, [&] { return to.sink.messages.size() > before && !from.sink.events.empty(); }));
  while (from->Progress() + to->Progress() > 0) {
  }
  to.sink.messages.clear();
  from.sink.TakeEvents();
  to.sink.TakeEvents();
  return peer;
}

TEST(SocketStepsTest, WhereThereIsNothingToDoNothingIsHandled) {
  DrivenTransport a;
  EXPECT_TRUE(a->Arm());
  EXPECT_FALSE(a.IsReadable());
  EXPECT_EQ(a->Progress(), 0);
  EXPECT_TRUE(a->Arm());
}

TEST(SocketStepsTest, ASmallMessageTakesOneStepAtEachEnd) {
  DrivenTransport a;
  DrivenTransport b;
  const PeerId peer = a.ConnectTo(b);
  EXPECT_FALSE(a->Arm());
  EXPECT_EQ(a->Progress(), 1);
  EXPECT_TRUE(a->Arm());
  EXPECT_EQ(b.WaitAndProgress(), 1);  // it accepts
  EXPECT_EQ(b.WaitAndProgress(), 1);  // it is greeted
  a.Send(peer, 1, "abc");
  EXPECT_FALSE(a->Arm());
  EXPECT_EQ(a->Progress(), 2);  // it writes, and tells that
  EXPECT_THAT(a.sink.TakeEvents(), ElementsAre("sent 1 OK"));
  EXPECT_EQ(b.WaitAndProgress(), 2);  // it reads, and tells that
  EXPECT_THAT(b.sink.TakeEvents(), ElementsAre("message 1"));
  EXPECT_TRUE(b->Arm());
  b.Receive(0, 1);
  EXPECT_FALSE(b->Arm());
  EXPECT_EQ(b->Progress(), 1);
  EXPECT_THAT(b.sink.TakeEvents(), ElementsAre("received 1 OK"));
  for (const DrivenTransport* node : {&a, &b}) {
    EXPECT_TRUE((*node)->Arm());
    EXPECT_FALSE(node->IsReadable());
    EXPECT_EQ((*node)->Progress(), 0);
  }
}

TEST(SocketStepsTest, WhatTheSinkAnswersGoesOutInTheSameStep) {
  DrivenTransport a;
  DrivenTransport b;
  const PeerId peer = Join(a, b);
  b.sink.then = [&] {
    if (b.sink.messages.size() == 1) b.Receive(0, 1);
    b.sink.messages.clear();
  };
  a.Send(peer, 1, std::string(kLargeMessage, 'x'));
  EXPECT_EQ(a->Progress(), 1);
  EXPECT_EQ(b.WaitAndProgress(), 3);  // it reads, tells, and asks for the payload
  EXPECT_EQ(a.WaitAndProgress(), 3);  // it reads, writes the payload, and tells that
  EXPECT_THAT(a.sink.TakeEvents(), ElementsAre("sent 1 OK"));
  EXPECT_TRUE(DrivenTransport::Run({&b}, [&] { return b.sink.events.size() == 2; }));
  EXPECT_THAT(b.sink.TakeEvents(), ElementsAre("message 1", "received 1 OK"));
}

TEST(SocketStepsTest, AStepCopiesAMebibyteOfOneStream) {
  DrivenTransport a({.shared_memory = true});
  DrivenTransport b({.shared_memory = true});
  const auto memory = SealedMemory::Create((3 << 20) + 1);
  a->Lend(memory->lent());
  const PeerId peer = Join(a, b);
  const std::vector<iovec> pieces = {PieceOf(memory->bytes())};
  a->Send(peer, {}, pieces, 1);
  ASSERT_TRUE(DrivenTransport::Run({&a, &b}, [&] { return b.sink.messages.size() == 1; }));
  b.Receive(0, 1);
  b.sink.TakeEvents();
  for (int step = 1; step <= 3; ++step) {
    EXPECT_EQ(b->Progress(), 1);
    EXPECT_THAT(b.sink.TakeEvents(), IsEmpty()) << step;
    EXPECT_FALSE(b->Arm());
  }
  EXPECT_EQ(b->Progress(), 2);
  EXPECT_THAT(b.sink.TakeEvents(), ElementsAre("received 1 OK"));
  EXPECT_TRUE(DrivenTransport::Run({&a, &b}, [&] { return a.sink.events.size() == 1; }));
}

TEST(SocketStepsTest, WhatIsReclaimedIsUnmappedStepByStep) {
  DrivenTransport a({.shared_memory = true});
  DrivenTransport b({.shared_memory = true});
  const auto memory = SealedMemory::Create(40 << 20);
  a->Lend(memory->lent());
  const PeerId peer = Join(a, b);
  const std::vector<iovec> pieces = {PieceOf(memory->bytes().first(kLargeMessage))};
  a->Send(peer, {}, pieces, 1);
  ASSERT_TRUE(DrivenTransport::Run({&a, &b}, [&] { return b.sink.messages.size() == 1; }));
  EXPECT_EQ(SealedMemory::CountMappings(), 2);
  b.sink.messages.clear();
  ASSERT_TRUE(DrivenTransport::Run({&a, &b}, [&] { return a.sink.events.size() == 1; }));
  while (a->Progress() + b->Progress() > 0) {
  }
  const std::string elsewhere(kLargeMessage, 'x');
  a->Reclaim(std::as_bytes(std::span(elsewhere)));  // was never lent
  EXPECT_TRUE(a->Arm());
  a->Reclaim(memory->bytes());
  EXPECT_EQ(a->Progress(), 1);
  // It reads that, which is a first step, and does a second.
  EXPECT_EQ(b.WaitAndProgress(), 2);
  EXPECT_EQ(SealedMemory::CountMappings(), 2);
  EXPECT_FALSE(b->Arm());
  EXPECT_EQ(b->Progress(), 1);
  EXPECT_EQ(SealedMemory::CountMappings(), 1);
  EXPECT_TRUE(b->Arm());
}

TEST(SocketStepsTest, ALossIsToldAfterAllElseOfThePeer) {
  DrivenTransport a;
  DrivenTransport b;
  const PeerId peer = Join(a, b);
  // What the sink sends meanwhile fails.
  Ticket last = 1;
  a.sink.then = [&] {
    if (absl::StartsWith(a.sink.events.back(), "sent") && last < 3) a.Send(peer, ++last, "abc");
  };
  a.Send(peer, 1, "abc");
  a->Break(peer, absl::UnavailableError("the test broke it"));
  a->Break(peer, absl::UnavailableError("again"));
  EXPECT_FALSE(a->Arm());
  EXPECT_EQ(a->Progress(), 2);
  EXPECT_THAT(a.sink.TakeEvents(), ElementsAre("sent 1 UNAVAILABLE", "sent 2 UNAVAILABLE"));
  EXPECT_EQ(a->Progress(), 2);
  EXPECT_THAT(a.sink.TakeEvents(), ElementsAre("sent 3 UNAVAILABLE", "lost 1 UNAVAILABLE"));
  EXPECT_EQ(a.sink.losses[0].message(), "the test broke it");
  EXPECT_TRUE(a->Arm());
  EXPECT_EQ(a->Progress(), 0);
}

TEST(SocketStepsTest, ALossAloneIsSomethingToTell) {
  DrivenTransport a;
  DrivenTransport b;
  const PeerId peer = Join(a, b);
  ASSERT_TRUE(a->Arm());
  a->Break(peer, absl::UnavailableError("the test broke it"));
  EXPECT_FALSE(a->Arm());
  EXPECT_EQ(a->Progress(), 1);
  EXPECT_THAT(a.sink.TakeEvents(), ElementsAre("lost 1 UNAVAILABLE"));
  EXPECT_TRUE(a->Arm());
}

TEST(SocketStepsTest, OfAPeerThatIsDisconnectedNoLossIsTold) {
  DrivenTransport a;
  DrivenTransport b;
  const PeerId first = Join(a, b);
  const PeerId second = Join(a, b);
  const PeerId third = a.ConnectTo(b);
  for (const PeerId peer : {first, second}) a->Break(peer, absl::UnavailableError("broken"));
  a.Send(third, 1, "abc");
  a->Disconnect(first);
  a->Disconnect(third);
  for (const PeerId peer : {first, third, PeerId(77)}) {
    a->Disconnect(peer);
    a->Break(peer, absl::UnavailableError("it is not there"));
  }
  a.Send(first, 2, "abc");
  while (a->Progress() > 0) {
  }
  EXPECT_THAT(a.sink.TakeEvents(),
              ElementsAre("sent 1 CANCELLED", "sent 2 UNAVAILABLE", "lost 2 UNAVAILABLE"));
}

TEST(SocketStepsTest, WhatEndsInsideAStepIsLeftAlone) {
  DrivenTransport a({.shared_memory = true});
  DrivenTransport b({.shared_memory = true});
  const auto memory = SealedMemory::Create((3 << 20) + kLargeMessage);
  a->Lend(memory->lent());
  const PeerId to_b = Join(a, b);
  const PeerId to_a = Join(b, a);
  const std::vector<iovec> small = {PieceOf(memory->bytes().first(kLargeMessage))};
  const std::vector<iovec> large = {PieceOf(memory->bytes().subspan(kLargeMessage))};
  a->Send(to_b, {}, small, 1);
  a->Send(to_b, {}, large, 2);
  ASSERT_TRUE(DrivenTransport::Run({&a, &b}, [&] { return b.sink.messages.size() == 2; }));
  for (const size_t index : {0U, 1U}) b.Receive(index, index);
  b.sink.TakeEvents();
  // The second one is only begun.
  b.sink.then = [&] { b->Disconnect(to_a); };
  while (b->Progress() > 0) {
  }
  EXPECT_THAT(b.sink.TakeEvents(), ElementsAre("received 0 OK", "received 1 CANCELLED"));
  EXPECT_TRUE(b->Arm());
  ASSERT_TRUE(DrivenTransport::Run({&a}, [&] { return a.sink.losses.size() == 1; }));
  EXPECT_THAT(std::string(a.sink.losses[0].message()),
              HasSubstr("the other side closed the connection"));
}

// Though both of its streams end in one step.
TEST(SocketStepsTest, ALossIsToldOnceAndNamesTheOtherSide) {
  DrivenTransport a;
  auto b = std::make_unique<DrivenTransport>();
  Join(a, *b);
  Join(*b, a);
  b.reset();
  ASSERT_TRUE(DrivenTransport::Run({&a}, [&] { return a.sink.losses.size() == 1; }));
  while (a->Progress() > 0) {
  }
  EXPECT_THAT(a.sink.TakeEvents(), ElementsAre("lost 1 UNAVAILABLE"));
  EXPECT_THAT(std::string(a.sink.losses[0].message()),
              MatchesRegex("connection with 127.0.0.1:[0-9]+: .+"));
}

// Nothing reads until the socket is full, and then the system fails.
TEST(SocketStepsTest, AConnectionThatCannotBeWrittenIsLost) {
  DrivenTransport a;
  DrivenTransport b;
  const PeerId peer = Join(a, b);
  a.Send(peer, 1, std::string(64 << 20, 'x'));
  ASSERT_TRUE(DrivenTransport::Run({&a, &b}, [&] { return b.sink.messages.size() == 1; }));
  b.Receive(0, 1);
  b.sink.messages.clear();
  while (b->Progress() > 0) {
  }
  ASSERT_GT(a.WaitAndProgress(), 0);
  while (a->Progress() > 0 || !a->Arm()) {
  }
  while (b->Progress() > 0) {
  }
  ASSERT_TRUE(a.WaitReadable());
  RunRefused(SYS_sendmsg, EPIPE, [&] {
    while (a->Progress() > 0) {
    }
  });
  EXPECT_THAT(a.sink.TakeEvents(), ElementsAre("sent 1 UNAVAILABLE", "lost 1 UNAVAILABLE"));
  EXPECT_THAT(std::string(a.sink.losses[0].message()), HasSubstr(": sending: Broken pipe"));
}

TEST(SocketStepsTest, ASocketThatTakesBytesAgainDoesNotWakeTheLoop) {
  DrivenTransport a;
  DrivenTransport b;
  const PeerId peer = Join(a, b);
  a.Send(peer, 1, std::string(32 << 20, 'x'));
  ASSERT_TRUE(DrivenTransport::Run({&a, &b}, [&] { return b.sink.messages.size() == 1; }));
  b.Receive(0, 1);
  // All that the socket takes, and then the rest.
  while (b->Progress() > 0) {
  }
  ASSERT_GT(a.WaitAndProgress(), 0);
  while (a->Progress() > 0 || !a->Arm()) {
  }
  ASSERT_TRUE(DrivenTransport::Run(
      {&a, &b}, [&] { return a.sink.events.size() == 1 && b.sink.events.size() == 2; }));
  EXPECT_THAT(b.sink.TakeEvents(), ElementsAre("message 1", "received 1 OK"));
  while (a->Progress() > 0) {
  }
  EXPECT_TRUE(a->Arm());
  EXPECT_FALSE(a.IsReadable());
}

TEST(SocketStepsTest, AConnectionThatIsNotWatchedIsLostLikeAnyOther) {
  DrivenTransport a;
  DrivenTransport b;
  RunRefused(SYS_epoll_ctl, ENOSPC, [&] {
    a.ConnectTo(b);
    while (a->Progress() > 0) {
    }
  });
  EXPECT_THAT(a.sink.TakeEvents(), ElementsAre("lost 1 UNAVAILABLE"));
  EXPECT_EQ(a.sink.losses[0].message(), "epoll_ctl: No space left on device");
}

TEST(SocketLinkTest, MemoryIsSharedWhereBothWantItAndTheFileProvesIt) {
  DrivenTransport sharing({.shared_memory = true});
  DrivenTransport other({.shared_memory = true});
  DrivenTransport plain;
  const PeerId shared = sharing.ConnectTo(other);
  EXPECT_EQ(sharing->link(shared), "shm");
  EXPECT_EQ(sharing->useful_pieces_max(shared), 1024);
  std::vector<std::pair<SocketTransport*, std::string>> links = {
      {&*sharing, plain->address()}, {&*plain, sharing->address()}, {&*plain, plain->address()}};
  ASSERT_OK_AND_ASSIGN(SocketAddress elsewhere, SocketAddress::Decode(other->address()));
  elsewhere.nonce_file.fd = 1 << 20;
  links.emplace_back(&*sharing, elsewhere.Encode());
  for (const auto& [from, to] : links) {
    ASSERT_OK_AND_ASSIGN(const PeerId peer, from->Connect(to));
    EXPECT_EQ(from->link(peer), "tcp");
    EXPECT_EQ(from->useful_pieces_max(peer), 64);
  }
  EXPECT_EQ(sharing->useful_pieces_max(PeerId(77)), 64);
  sharing->Break(shared, absl::UnavailableError("the test broke it"));
  while (sharing->Progress() > 0) {
  }
  EXPECT_EQ(sharing->useful_pieces_max(shared), 64);
}

TEST(SocketCreateTest, WhatTheSystemRefusesIsNamedAndNoDescriptorStaysOpen) {
  struct Refusal {
    int call = 0;
    int error = 0;
    absl::StatusCode code;
    std::string what;
  };
  constexpr auto kExhausted = absl::StatusCode::kResourceExhausted;
  constexpr auto kUnavailable = absl::StatusCode::kUnavailable;
  const std::vector<Refusal> refusals = {
      {SYS_getrandom, ENOSYS, absl::StatusCode::kInternal, "no random bytes"},
      {SYS_memfd_create, EMFILE, kExhausted, "memfd_create"},
      {SYS_write, ENOSPC, kExhausted, "writing a nonce"},
      {SYS_socket, EMFILE, kUnavailable, "listing network interfaces: Too many open files"},
      {SYS_listen, EADDRINUSE, kUnavailable, "listening at 127.0.0.1:0: Address already in use"},
      {SYS_epoll_create1, EMFILE, kExhausted, "epoll_create1"},
      {SYS_timerfd_create, EMFILE, kExhausted, "timerfd_create"},
      {SYS_epoll_ctl, ENOSPC, kUnavailable, "epoll_ctl: No space left on device"}};
  RecordingSink sink;
  const int before = CountDescriptors();
  for (const Refusal& refusal : refusals) {
    absl::Status status;
    RunRefused(refusal.call, refusal.error,
               [&] { status = SocketTransport::Create(sink, {.interface = "lo"}).status(); });
    EXPECT_THAT(status, StatusIs(refusal.code, HasSubstr(refusal.what)));
  }
  EXPECT_EQ(CountDescriptors(), before);
  EXPECT_OK(SocketTransport::Create(sink, {.interface = "lo"}));
  EXPECT_EQ(CountDescriptors(), before);
}

}  // namespace
}  // namespace crossmesh

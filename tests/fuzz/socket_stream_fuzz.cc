// Both ends of a socket transport's connection, at the other end of which there is a liar: whatever
// comes, a stream goes on or ends, and every send and receive is completed once.
//
// The first byte says which end, through shared memory or not, and whether it may give pages; then
// come the bytes that follow a valid handshake and, through shared memory, a region; or the answers
// to three messages.

#include "common/base/check.h"
#include "common/base/unique_fd.h"
#include "tests/fuzz/fuzz_input.h"
#include "worker/transport/socket/incoming_stream.h"
#include "worker/transport/socket/lent_regions.h"
#include "worker/transport/socket/outgoing_stream.h"
#include "worker/transport/socket/sink_queue.h"

#include <array>
#include <memory>
#include <utility>
#include <vector>

#include <absl/status/status.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

namespace crossmesh {
namespace {

constexpr uint64_t kReceiveBytesMax = 1 << 16;
// A region that the other side has lent.
constexpr uint64_t kLent = 1;
constexpr size_t kLentBytes = 1 << 16;

// Receives some messages, drops others, keeps the rest to the end.
class Receiver final : public TransportSink {
 public:
  explicit Receiver(uint8_t choices) : choices_(choices) {}

  void OnMessage(std::unique_ptr<IncomingMessage> message) override {
    const uint64_t bytes = message->header().payload_bytes;
    const int choice = (choices_ >> (count_++ % 6)) & 3;
    if (choice == 0) return;
    if (choice == 1 || bytes > kReceiveBytesMax) return kept_.push_back(std::move(message));
    auto& memory = memories_.emplace_back(std::make_unique<Memory>());
    memory->bytes.resize(bytes);
    if (bytes > 0) memory->pieces.push_back(PieceOf(std::span(memory->bytes)));
    ++open_;
    message->Receive(memory->pieces, 0);
  }
  void OnSent(Ticket /*ticket*/, const absl::Status& /*status*/) override { --open_; }
  void OnReceived(Ticket /*ticket*/, const absl::Status& /*status*/) override { --open_; }
  void OnPeerLost(PeerId /*peer*/, const absl::Status& /*status*/) override {}

  void Opened(int count) { open_ += count; }
  int open() const { return open_; }
  void DropKept() { kept_.clear(); }

 private:
  struct Memory {
    std::vector<std::byte> bytes;
    std::vector<iovec> pieces;
  };

  const uint8_t choices_;
  int count_ = 0;
  int open_ = 0;
  std::vector<std::unique_ptr<Memory>> memories_;
  std::vector<std::unique_ptr<IncomingMessage>> kept_;
};

std::pair<UniqueFd, UniqueFd> MakePair() {
  std::array<int, 2> fds;
  CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds.data()), 0);
  return {UniqueFd(fds[0]), UniqueFd(fds[1])};
}

SocketHandshake MakeHandshake(bool shared_memory) {
  return {.shared_memory = shared_memory ? 1U : 0U,
          .nonce_file = {.pid = static_cast<uint32_t>(getpid())},
          .number = 1};
}

void Write(int fd, const void* bytes, size_t size) {
  CHECK_EQ(send(fd, bytes, size, MSG_NOSIGNAL), static_cast<ssize_t>(size));
}

absl::Status RunOnce(SocketStream& stream, SinkQueue& told, Receiver& receiver) {
  absl::Status status = stream.Read(1 << 20);
  told.TellTo(receiver);
  if (status.ok()) status = stream.Work(1 << 20);
  told.TellTo(receiver);
  return status;
}

// Goes on from there until the other side has nothing more to say.
void Run(absl::Status status, SocketStream& stream, SinkQueue& told, Receiver& receiver) {
  while (status.ok()) status = RunOnce(stream, told, receiver);
  stream.End(status);
  while (!told.empty()) told.TellTo(receiver);
  CHECK_EQ(receiver.open(), 0);
  receiver.DropKept();
}

// Memory that may be mapped, so that there is something to refer to.
const LentRegion& Lent() {
  static const LentRegion* const lent = [] {
    const int fd = memfd_create("lent", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    CHECK_EQ(ftruncate(fd, kLentBytes), 0);
    CHECK_EQ(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
    void* memory = mmap(nullptr, kLentBytes, PROT_READ, MAP_SHARED, fd, 0);
    CHECK(memory != MAP_FAILED);
    const std::span<const std::byte> bytes(static_cast<const std::byte*>(memory), kLentBytes);
    static LentRegions regions;
    regions.Add({.bytes = bytes, .fd = fd});
    const iovec piece = PieceOf(bytes);
    return regions.Find({&piece, 1});
  }();
  return *lent;
}

void FuzzIncoming(bool shared_memory, std::span<const uint8_t> bytes, uint8_t choices) {
  auto [ours, theirs] = MakePair();
  SocketStream::WorkList work_list;
  MessagePool pool;
  SinkQueue told;
  Receiver receiver(choices);
  UnmapQueue unmapped;
  IncomingStream stream(
      std::move(ours),
      IncomingStream::Shared{
          .work_list = work_list, .told = told, .pool = pool, .unmapped = unmapped});
  const SocketHandshake handshake = MakeHandshake(shared_memory);
  Write(theirs.get(), &handshake, sizeof(handshake));
  CHECK_OK(stream.Read(1 << 20));
  CHECK(stream.handshake().has_value());
  CHECK_OK(stream.Admit(shared_memory));
  if (shared_memory) {
    const FrameHeader frame = {.kind = FrameKind::kRegion, .region = kLent};
    Write(theirs.get(), &frame, sizeof(frame));
    Write(theirs.get(), &Lent().file, sizeof(RegionFile));
  }
  Write(theirs.get(), bytes.data(), bytes.size());
  CHECK_EQ(shutdown(theirs.get(), SHUT_WR), 0);
  Run(absl::OkStatus(), stream, told, receiver);
}

void FuzzOutgoing(bool shared_memory, std::span<const uint8_t> bytes, uint8_t choices) {
  const bool inside_host = (choices & 4) != 0;
  auto [ours, theirs] = MakePair();
  SocketStream::WorkList work_list;
  SinkQueue told;
  Receiver receiver(choices);
  // All of it is so long that its pages are given.
  const iovec piece = PieceOf(inside_host ? Lent().bytes : Lent().bytes.first(10000));
  LentRegions regions;
  regions.Add({.bytes = Lent().bytes, .fd = static_cast<int>(Lent().file.fd)});
  OutgoingStream stream(std::move(ours), OutgoingStream::Reach{inside_host},
                        MakeHandshake(shared_memory),
                        {.regions = regions, .work_list = work_list, .told = told});
  for (Ticket ticket = 0; ticket < 3; ++ticket) stream.Send({}, {&piece, 1}, ticket);
  receiver.Opened(3);
  // The second half of the answers comes when what the first one asks for has been sent.
  const size_t first = bytes.size() / 2;
  Write(theirs.get(), bytes.data(), first);
  const absl::Status status = RunOnce(stream, told, receiver);
  Write(theirs.get(), bytes.data() + first, bytes.size() - first);
  CHECK_EQ(shutdown(theirs.get(), SHUT_WR), 0);
  Run(status, stream, told, receiver);
}

}  // namespace

void FuzzOne(const uint8_t* data, size_t size) {
  FuzzInput input({data, size});
  const uint8_t choices = input.Byte();
  const std::span<const uint8_t> bytes = std::span(data, size).subspan(size > 0 ? 1 : 0);
  const bool shared_memory = (choices & 1) != 0;
  if ((choices & 2) != 0) {
    FuzzOutgoing(shared_memory, bytes, choices);
  } else {
    FuzzIncoming(shared_memory, bytes, choices);
  }
}

}  // namespace crossmesh

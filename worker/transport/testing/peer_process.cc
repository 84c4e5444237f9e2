#include "worker/transport/testing/peer_process.h"

#include "common/base/check.h"
#include "worker/transport/testing/sealed_memory.h"

#include <array>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <iostream>
#include <memory>
#include <utility>
#include <vector>

#include <absl/strings/escaping.h>
#include <absl/strings/str_cat.h>
#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

namespace crossmesh {
namespace {

constexpr size_t kMessageBytes = 8 << 20;
constexpr int kWindow = 8;
constexpr int kPatienceMs = 30'000;

// Sends for ever and parks what comes.
class Flood final : public TransportSink {
 public:
  explicit Flood(const MakeTransport& make) : transport_(*make(*this)) {
    transport_->Lend(payload_->lent());
  }

  Transport& transport() { return *transport_; }
  void Start(PeerId peer) {
    peer_ = peer;
    for (int i = 0; i < kWindow; ++i) transport_->Send(peer_, {}, pieces_, 0);
  }

 private:
  void OnMessage(std::unique_ptr<IncomingMessage> message) override {
    held_.push_back(std::move(message));
  }
  void OnSent(Ticket /*ticket*/, const absl::Status& status) override {
    if (status.ok()) transport_->Send(peer_, {}, pieces_, 0);
  }
  void OnReceived(Ticket /*ticket*/, const absl::Status& /*status*/) override {}
  void OnPeerLost(PeerId /*peer*/, const absl::Status& /*status*/) override {}

  const std::unique_ptr<SealedMemory> payload_ = SealedMemory::Create(kMessageBytes);
  const std::vector<iovec> pieces_ = {PieceOf(payload_->bytes())};
  PeerId peer_;
  std::unique_ptr<Transport> transport_;
  std::vector<std::unique_ptr<IncomingMessage>> held_;
};

absl::StatusOr<std::string> ReadLine(int fd) {
  std::string line;
  for (char next = 0; read(fd, &next, 1) == 1;) {
    if (next == '\n') return line;
    line += next;
  }
  return absl::UnavailableError("the peer process ended");
}

// Of a process that has begun, which says it in one piece.
absl::StatusOr<std::string> ReadAddress(int fd) {
  pollfd wait = {.fd = fd, .events = POLLIN};
  int ready = 0;
  while ((ready = poll(&wait, 1, kPatienceMs)) < 0) CHECK_EQ(errno, EINTR);
  if (ready > 0) return ReadLine(fd);
  return absl::DeadlineExceededError(
      absl::StrCat("waited ", kPatienceMs, " ms in vain for the address of the peer process"));
}

}  // namespace

int PeerProcess::Main(const MakeTransport& make) {
  Flood flood(make);
  std::cout << absl::BytesToHexString(flood.transport().address()) << std::endl;
  std::array<pollfd, 2> waits = {{{.fd = STDIN_FILENO, .events = POLLIN},
                                  {.fd = flood.transport().event_fd(), .events = POLLIN}}};
  while (true) {
    while (flood.transport().Progress() > 0 || !flood.transport().Arm()) {
    }
    if (poll(waits.data(), waits.size(), -1) < 0 && errno != EINTR) return 1;
    if (waits[0].revents == 0) continue;
    const absl::StatusOr<std::string> address = ReadLine(STDIN_FILENO);
    if (!address.ok()) return 0;
    const absl::StatusOr<PeerId> peer = flood.transport().Connect(absl::HexStringToBytes(*address));
    if (!peer.ok()) return 1;
    flood.Start(*peer);
  }
}

absl::StatusOr<PeerProcess> PeerProcess::Start(std::string mode) {
  std::array<int, 2> in;
  std::array<int, 2> out;
  CHECK(pipe2(in.data(), O_CLOEXEC) == 0 && pipe2(out.data(), O_CLOEXEC) == 0);
  const UniqueFd child_in(in[0]);
  const UniqueFd from(out[0]);
  UniqueFd child_out(out[1]);
  PeerProcess process;
  process.to_.Reset(in[1]);

  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, child_in.get(), STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, child_out.get(), STDOUT_FILENO);
  std::string program = "/proc/self/exe";
  std::string argument = kArgument;
  char* const arguments[] = {program.data(), argument.data(), mode.data(), nullptr};
  const int error =
      posix_spawn(&process.pid_, program.c_str(), &actions, nullptr, arguments, environ);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) return absl::ErrnoToStatus(error, "starting the peer process");

  child_out.Reset();
  absl::StatusOr<std::string> address = ReadAddress(from.get());
  if (!address.ok()) return address.status();
  process.address_ = absl::HexStringToBytes(*address);
  return process;
}

PeerProcess::PeerProcess(PeerProcess&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)),
      to_(std::move(other.to_)),
      address_(std::move(other.address_)) {}

void PeerProcess::ConnectTo(const std::string& address) {
  const std::string line = absl::StrCat(absl::BytesToHexString(address), "\n");
  CHECK_EQ(write(to_.get(), line.data(), line.size()), static_cast<ssize_t>(line.size()));
}

void PeerProcess::Kill() {
  if (pid_ < 0) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
  pid_ = -1;
}

}  // namespace crossmesh

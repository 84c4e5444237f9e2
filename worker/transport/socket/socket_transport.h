#pragma once

#include "common/base/clock.h"
#include "common/base/unique_fd.h"
#include "worker/transport/message_pool.h"
#include "worker/transport/socket/connection_numbers.h"
#include "worker/transport/socket/connection_warnings.h"
#include "worker/transport/socket/incoming_stream.h"
#include "worker/transport/socket/lent_regions.h"
#include "worker/transport/socket/outgoing_stream.h"
#include "worker/transport/socket/sink_queue.h"
#include "worker/transport/socket/socket_address.h"
#include "worker/transport/socket/socket_stream.h"
#include "worker/transport/socket/unmap_queue.h"
#include "worker/transport/transport.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <absl/container/flat_hash_map.h>
#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>
#include <absl/time/time.h>

namespace crossmesh {

struct SocketRemote;

// The k-th Connect here and the k-th there, each a TCP connection of its own: they end together.
struct SocketConnection {
  SocketRemote* remote = nullptr;
  uint64_t number = 0;
  std::optional<PeerId> peer;                // when this side has connected, and then
  std::unique_ptr<OutgoingStream> outgoing;  // this as well
  std::unique_ptr<IncomingStream> incoming;  // when the other side has
};

// Another transport, known by its nonce. Stays known for as long as this transport lives, so that
// numbers are not used twice.
struct SocketRemote {
  ConnectionNumbers numbers;
  absl::flat_hash_map<uint64_t, std::unique_ptr<SocketConnection>> open;  // by number
};

// A transport over TCP sockets, and inside a host by mapping the memory that the sender lends.
// Payloads go from the sender's pieces of memory to the receiver's without passing through memory
// of ours.
//
// With shared memory only the owner of a buffer ever writes to it: the receiver reads the sender's.
// Without it, inside a host, the receiver reads them as well, where the system has taken the pages.
// A peer that does not know yet that this side has disconnected may therefore read a payload late,
// and find what it holds by then; the checksums of its operation tell.
class SocketTransport final : public Transport {
 public:
  struct Options {
    // Its IP address is where this listens and connects from. E.g. "lo".
    std::string interface;
    bool shared_memory = false;  // map memory that processes of this host lend, and lend own
    // A connection that has not said by then what it is, is closed, at twice that time at the
    // latest. At least a millisecond.
    absl::Duration handshake_limit = absl::Seconds(5);
  };

  // `sink` must outlive the transport. Unavailable: there is no such interface, or it has no
  // address; nothing can listen there. ResourceExhausted: no file descriptors
  // left. Internal: the system has no random bytes.
  static absl::StatusOr<std::unique_ptr<SocketTransport>> Create(TransportSink& sink,
                                                                 const Options& options);
  // All messages must have been destroyed.
  ~SocketTransport() override;

  absl::string_view name() const override { return "socket"; }
  const std::string& address() const override { return encoded_address_; }
  int64_t eager_bytes_max() const override { return kInlineBytesMax; }
  int pieces_max() const override { return kPiecesMax; }
  int useful_pieces_max(PeerId peer) const override;
  void Lend(const LentMemory& memory) override { regions_.Add(memory); }
  void Reclaim(std::span<const std::byte> memory) override;
  absl::StatusOr<PeerId> Connect(absl::string_view address) override;
  absl::string_view link(PeerId peer) const override;
  void Send(PeerId peer, const MessageHeader& header, Pieces payload, Ticket ticket) override;
  void Disconnect(PeerId peer) override;
  void Break(PeerId peer, const absl::Status& why) override;
  int Progress() override;
  int event_fd() const override { return epoll_.get(); }
  bool Arm() override;

 private:
  struct Peer {
    SocketConnection* connection = nullptr;  // none: it has ended, and its loss is to be told
    bool shared_memory = false;
  };
  struct Loss {
    PeerId peer;
    absl::Status why;
  };

  // Where others find it, and the file by which they know that it is this one.
  struct Identity {
    SocketAddress address;
    UniqueFd listener;
    UniqueFd nonce_file;
  };

  SocketTransport(TransportSink& sink, const Options& options, Identity identity);

  absl::Status Open();
  absl::Status Watch(int fd, void* what);
  void WatchForWriting(SocketStream& stream);

  int RunReady();
  int RunWork();
  int TellLosses();
  void Accept();
  void PauseAccepting();
  void SetTicking(bool ticking);
  void Tick();
  absl::Status ReadFrom(SocketStream& stream, size_t bytes_max);
  absl::Status Greet(IncomingStream& stream);
  // Of the transport with this nonce; made when there is none.
  SocketRemote& RemoteOf(const TransportNonce& nonce);
  SocketConnection& OpenConnection(SocketRemote& remote, uint64_t number);
  void Fail(SocketStream& stream, const absl::Status& failure);
  std::unique_ptr<IncomingStream> TakeGreeting(const SocketStream& stream);
  void EndConnection(SocketConnection& connection, const absl::Status& why);
  void Bury(std::unique_ptr<SocketStream> stream, const absl::Status& why);
  void BuryEnded();

  TransportSink& sink_;
  const std::string interface_;
  const absl::Duration handshake_limit_;
  const SocketAddress own_address_;
  const std::string encoded_address_;
  const UniqueFd listener_;
  const UniqueFd nonce_file_;
  UniqueFd epoll_;
  UniqueFd ticker_;
  bool accepting_ = true;
  uint64_t peers_made_ = 0;
  LentRegions regions_;
  UnmapQueue unmapped_;
  MessagePool pool_;
  SinkQueue told_;
  std::vector<Loss> lost_;  // told when nothing else is left to tell
  SocketStream::WorkList work_list_;
  SocketStream::WorkList working_;  // swapped with work_list_, so that both keep their memory
  absl::flat_hash_map<PeerId, Peer> peers_;
  absl::flat_hash_map<std::string, std::unique_ptr<SocketRemote>> remotes_;  // by nonce
  std::vector<std::unique_ptr<IncomingStream>> greeting_;                    // no handshake yet
  const RealClock clock_;
  ConnectionWarnings warnings_{clock_};
  // Ended inside of what still knows them.
  std::vector<std::unique_ptr<SocketStream>> ended_;
};

}  // namespace crossmesh

#pragma once

#include "common/base/unique_fd.h"
#include "common/event_loop/event_source.h"

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <absl/functional/any_invocable.h>
#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>

namespace crossmesh {

// One end of a local socket between two processes (SOCK_SEQPACKET): messages of bytes, each with a
// descriptor or without. A message too large for a datagram travels in a sealed file. Does not
// trust the other end. Confined to its loop.
class MessageSocket final : public EventSource {
 public:
  static constexpr int64_t kDatagramBytesMax = int64_t{16} << 10;
  static constexpr int64_t kMessageBytesMax = int64_t{8} << 20;
  // That the other end has not taken yet, beyond what the system holds.
  static constexpr size_t kWaitingMax = 4096;

  // Called from inside Progress. The socket may be removed from the loop there, not destroyed.
  struct Handlers {
    absl::AnyInvocable<void(std::string bytes, UniqueFd descriptor)> on_message;
    // The last call. Unavailable when the other end is gone; InvalidArgument when it has sent what
    // no MessageSocket sends.
    absl::AnyInvocable<void(const absl::Status& why)> on_closed;
  };

  // The two ends, closed when a program is started.
  static absl::StatusOr<std::pair<UniqueFd, UniqueFd>> MakePair();

  // `socket` is one end. ResourceExhausted: no descriptors left.
  static absl::StatusOr<std::unique_ptr<MessageSocket>> Create(UniqueFd socket, Handlers handlers);
  MessageSocket(const MessageSocket&) = delete;
  MessageSocket& operator=(const MessageSocket&) = delete;

  // Never waits; what is sent to a closed socket is lost. InvalidArgument when it is too large,
  // ResourceExhausted when the other end does not take what was sent before.
  absl::Status Send(absl::string_view bytes, UniqueFd descriptor = UniqueFd());

  // Lets the other end see the end, and calls nothing more. Repeatable.
  void Close();

  int Progress() override;
  int event_fd() const override { return epoll_.get(); }

 private:
  struct Datagram {
    std::string bytes;
    std::vector<UniqueFd> descriptors;
  };

  MessageSocket(UniqueFd socket, UniqueFd epoll, Handlers handlers);

  static absl::StatusOr<Datagram> Frame(absl::string_view bytes, UniqueFd descriptor);
  // Whether it was taken by the system, or is lost since the other end is gone.
  bool TrySend(const Datagram& datagram) const;
  void Flush();
  void Watch(bool is_writable);
  // Whether there was one.
  bool ReceiveOne();
  void Deliver(Datagram datagram);
  void Fail(const absl::Status& why);

  UniqueFd socket_;  // none once it is closed
  const UniqueFd epoll_;
  Handlers handlers_;
  std::deque<Datagram> waiting_;
};

}  // namespace crossmesh

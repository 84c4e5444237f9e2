#pragma once

#include "common/base/unique_fd.h"
#include "worker/transport/socket/socket_address.h"
#include "worker/transport/socket/socket_frame.h"

#include <cstddef>
#include <span>
#include <string>
#include <type_traits>

#include <absl/strings/string_view.h>

namespace crossmesh {

// The other end of a SocketTransport's connection as a bare socket that says what a test makes it
// say. Its calls block, and fail the test when what they wait for does not come.
class RawPeer {
 public:
  // Connects to the transport with this address.
  static RawPeer To(const std::string& address);
  // Takes the place of a transport on this host, without shared memory.
  static RawPeer Listening();

  // Of the transport connected to.
  const SocketAddress& other() const { return other_; }
  // The address by which a transport connects to this one. Listening ones only.
  std::string address() const { return other_.Encode(); }
  // Waits until a transport has connected. Listening ones only.
  void Accept();
  // A valid one.
  SocketHandshake Handshake() const;
  // Says that `file`, of this process, is a region.
  void Lend(uint64_t region, const RegionFile& file);

  void SendBytes(absl::string_view bytes);
  template <typename T>
    requires std::is_trivially_copyable_v<T>
  void Send(const T& object) {
    SendBytes({reinterpret_cast<const char*>(&object), sizeof(object)});
  }
  template <typename T>
    requires std::is_trivially_copyable_v<T>
  T Read() {
    T object = {};
    ReadBytes(std::as_writable_bytes(std::span(&object, 1)));
    return object;
  }
  // Waits until the transport has only to read what was sent.
  void WaitDelivered();
  // Waits until the transport has closed the connection, dropping what it sends before.
  void WaitClosed();

 private:
  RawPeer() = default;
  void ReadBytes(std::span<std::byte> into);

  SocketAddress other_;
  UniqueFd fd_;
  UniqueFd nonce_file_;  // of ours
};

}  // namespace crossmesh

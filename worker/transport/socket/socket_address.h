#pragma once

#include <array>
#include <cstdint>
#include <string>

#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>

namespace crossmesh {

// 128 random bits that name one transport for as long as it lives.
using TransportNonce = std::array<char, 16>;

// A file that a process has open.
struct ProcessFile {
  uint32_t pid = 0;
  uint32_t fd = 0;
  friend bool operator==(const ProcessFile&, const ProcessFile&) = default;
};

// A place to connect to.
struct IpEndpoint {
  std::array<char, 16> ip = {};  // IPv6, or IPv4 as ::ffff:a.b.c.d
  uint16_t port = 0;

  bool is_ipv4() const;
  // "127.0.0.1:7000", "[::1]:7000"
  std::string ToString() const;
  friend bool operator==(const IpEndpoint&, const IpEndpoint&) = default;
};

// What one SocketTransport hands to its peers. The checksum protects against mistakes, not
// attackers: addresses come over the authenticated control plane.
//
//   bytes   content
//   8       "XMESHSOC"
//   1       version, 2
//   1       1 if the transport uses shared memory inside a host, else 0
//   4       id of its process
//   4       number of a descriptor there, from which the nonce can be read
//   16      nonce of the transport
//   16      IP address, IPv4 as ::ffff:a.b.c.d
//   2       port
//   8       XXH3-64 of all bytes before
//
// Numbers are little endian.
struct SocketAddress {
  bool shared_memory = false;
  ProcessFile nonce_file;
  TransportNonce nonce = {};
  IpEndpoint endpoint;

  std::string Encode() const;

  // InvalidArgument: not an address of a SocketTransport, or one of another version.
  static absl::StatusOr<SocketAddress> Decode(absl::string_view bytes);

  friend bool operator==(const SocketAddress&, const SocketAddress&) = default;
};

}  // namespace crossmesh

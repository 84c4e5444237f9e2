#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>

namespace crossmesh {

// Where a server listens or a channel goes. Immutable once parsed. Text forms
// "unix:/path/of/socket", "127.0.0.1:7400", "[::1]:7400", "node-a:7400".
struct RpcAddress {
  std::string unix_path;  // empty: TCP
  std::string host;       // of TCP, without brackets
  uint16_t port = 0;      // 0, when listening: any free one

  bool is_unix() const { return !unix_path.empty(); }
  // Can only processes of this machine reach it? True for Unix sockets, 127.0.0.0/8, ::1 and
  // "localhost".
  bool local() const;
  std::string ToString() const;

  friend bool operator==(const RpcAddress&, const RpcAddress&) = default;
};

// InvalidArgument, naming the text and what was expected: another form, a port over 65535, a socket
// path that is not absolute or longer than the 107 bytes that the system allows.
absl::StatusOr<RpcAddress> ParseRpcAddress(absl::string_view text);

// Several, separated by commas: each as it is written. InvalidArgument: none, or as
// ParseRpcAddress.
absl::StatusOr<std::vector<std::string>> ParseAddressList(absl::string_view text);

// InvalidArgument, naming the address and the flag, unless the address is local or `insecure`.
absl::Status CheckPlaintextAllowed(const RpcAddress& address, bool insecure);

}  // namespace crossmesh

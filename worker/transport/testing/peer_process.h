#pragma once

#include "common/base/unique_fd.h"
#include "worker/transport/testing/transport_node.h"

#include <string>

#include <absl/status/statusor.h>
#include <sys/types.h>

namespace crossmesh {

// A process with a transport at the other end, for a test to kill. It runs this same program with
// the arguments kArgument and a mode, and does not share anything with it.
class PeerProcess {
 public:
  static constexpr char kArgument[] = "--transport-peer";

  // What main does when its first argument is kArgument, with the transport that the second one
  // names: prints its address, reads the other's, connects and keeps eight messages of 8 MiB on
  // their way to it. What comes in is held for ever. Returns the exit status, when standard input
  // closes.
  static int Main(const MakeTransport& make);

  static absl::StatusOr<PeerProcess> Start(std::string mode);

  PeerProcess(PeerProcess&& other) noexcept;
  ~PeerProcess() { Kill(); }

  const std::string& address() const { return address_; }
  // Tells the process to connect to `address`.
  void ConnectTo(const std::string& address);
  // Repeatable.
  void Kill();

 private:
  PeerProcess() = default;

  pid_t pid_ = -1;
  UniqueFd to_;
  std::string address_;
};

}  // namespace crossmesh

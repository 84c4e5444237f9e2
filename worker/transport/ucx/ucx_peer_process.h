#pragma once

#include "common/base/unique_fd.h"

#include <string>

#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>
#include <sys/types.h>

namespace crossmesh {

// A process with a UcxTransport at the other end, for a test to kill. It runs this same program
// with the argument kArgument, and does not share anything with it.
class UcxPeerProcess {
 public:
  static constexpr char kArgument[] = "--ucx-peer";

  // What main does when its arguments are kArgument and a mode, "shm" or "tcp": prints its address,
  // reads the other's, connects and keeps eight messages of 8 MiB on their way to it. What comes in
  // is parked for ever. Returns the exit status, when standard input closes.
  static int Main(absl::string_view mode);

  static absl::StatusOr<UcxPeerProcess> Start(bool shared_memory);

  UcxPeerProcess(UcxPeerProcess&& other) noexcept;
  ~UcxPeerProcess() { Kill(); }

  const std::string& address() const { return address_; }
  // Tells the process to connect to `address`.
  void ConnectTo(const std::string& address);
  // Repeatable.
  void Kill();

 private:
  UcxPeerProcess() = default;

  pid_t pid_ = -1;
  UniqueFd to_;
  std::string address_;
};

}  // namespace crossmesh

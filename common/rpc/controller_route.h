#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include <absl/status/status.h>

namespace crossmesh {

// Which of several controllers is asked next: the one that has answered, until it does not; then
// the one that it names as the leader, which need not be in the list; else the next of the list.
// Thread-compatible.
class ControllerRoute {
 public:
  // At least one.
  explicit ControllerRoute(std::vector<std::string> addresses)
      : addresses_(std::move(addresses)), current_(addresses_.front()) {}

  const std::string& current() const { return current_; }

  // A call to `address` ended so. Only what a controller says that does not lead, or none at all,
  // leads on; what is told of another one than the present is old.
  void Ended(const std::string& address, const absl::Status& status);

 private:
  const std::vector<std::string> addresses_;
  size_t next_ = 1;  // of the list, modulo its size, when no leader is named
  std::string current_;
};

}  // namespace crossmesh

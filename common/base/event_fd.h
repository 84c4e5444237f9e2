#pragma once

#include "common/base/unique_fd.h"

#include <utility>

#include <absl/status/statusor.h>

namespace crossmesh {

// A flag that poll(2) and epoll(7) can wait for: readable from Signal until Drain. Any number of
// signals before a drain count as one. Thread-safe.
class EventFd {
 public:
  // ResourceExhausted: the process or the system has no descriptors left.
  static absl::StatusOr<EventFd> Create();

  EventFd(EventFd&&) = default;
  EventFd& operator=(EventFd&&) = default;

  // Never blocks.
  void Signal();

  // Clears the flag; returns whether it was set. Never blocks.
  bool Drain();

  int fd() const { return fd_.get(); }

 private:
  explicit EventFd(UniqueFd fd) : fd_(std::move(fd)) {}

  UniqueFd fd_;
};

}  // namespace crossmesh

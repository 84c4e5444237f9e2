#pragma once

#include "common/base/clock.h"
#include "common/base/event_fd.h"
#include "common/base/unique_fd.h"

#include <algorithm>
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/time/time.h>
#include <poll.h>

namespace crossmesh {

// Until when a thread may wait, and what ends its waits before. Immutable.
struct ProbePatience {
  const Clock& clock;
  absl::Duration end;   // on the monotonic clock
  const EventFd& stop;  // set once, for good

  ProbePatience Until(absl::Duration earlier) const {
    return {clock, std::min(end, earlier), stop};
  }
};

// Waits until one of the descriptors is ready; their `revents` say which. DeadlineExceeded: none
// was in time; Cancelled: stopped.
absl::Status WaitForAny(std::vector<pollfd>& descriptors, const ProbePatience& patience);

// A connected, non-blocking socket on which one thread waits with patience. Errors of all methods:
// DeadlineExceeded and Cancelled as above, Unavailable when the connection breaks or ends too soon.
// Thread-compatible.
class TimedSocket {
 public:
  TimedSocket(UniqueFd fd, const ProbePatience& patience)
      : fd_(std::move(fd)), patience_(patience) {}

  // All of them.
  absl::Status Send(std::span<const char> bytes);
  absl::Status Receive(std::span<char> bytes);
  // As many as go at once, at least one. Receiving 0: the other side sends no more.
  absl::StatusOr<size_t> SendSome(std::span<const char> bytes);
  absl::StatusOr<size_t> ReceiveSome(std::span<char> bytes);

  // Waits for a connection that is on its way, until `end` at most.
  absl::Status FinishConnect(absl::Duration end);
  // Tells the other side that nothing more comes.
  void CloseSending();

  int fd() const { return fd_.get(); }

 private:
  absl::Status WaitFor(short events, const ProbePatience& patience);

  UniqueFd fd_;
  const ProbePatience patience_;
};

}  // namespace crossmesh

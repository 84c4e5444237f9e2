#include "common/base/event_fd.h"

#include "common/base/check.h"

#include <cerrno>
#include <cstdint>

#include <absl/status/status.h>
#include <sys/eventfd.h>
#include <unistd.h>

namespace crossmesh {

absl::StatusOr<EventFd> EventFd::Create() {
  UniqueFd fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!fd.valid()) return absl::ErrnoToStatus(errno, "eventfd");
  return EventFd(std::move(fd));
}

void EventFd::Signal() {
  const uint64_t one = 1;
  ssize_t written = 0;
  do {
    written = write(fd_.get(), &one, sizeof(one));
  } while (written < 0 && errno == EINTR);
  // EAGAIN: the counter is full, so the flag is set already.
  CHECK(written == sizeof(one) || errno == EAGAIN) << "errno " << errno;
}

bool EventFd::Drain() {
  uint64_t count = 0;
  ssize_t got = 0;
  do {
    got = read(fd_.get(), &count, sizeof(count));
  } while (got < 0 && errno == EINTR);
  CHECK(got == sizeof(count) || errno == EAGAIN) << "errno " << errno;
  return got == sizeof(count);
}

}  // namespace crossmesh

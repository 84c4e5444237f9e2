#include "worker/gpu/process/child_output.h"

#include <array>
#include <cerrno>

#include <absl/memory/memory.h>
#include <absl/status/status.h>
#include <absl/strings/ascii.h>
#include <absl/strings/string_view.h>
#include <fcntl.h>
#include <sys/epoll.h>
#include <unistd.h>

namespace crossmesh {

absl::StatusOr<ChildOutput::Made> ChildOutput::Create() {
  std::array<int, 2> ends = {};
  if (pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK) != 0) return absl::ErrnoToStatus(errno, "pipe2");
  UniqueFd pipe(ends[0]);
  UniqueFd end(ends[1]);
  UniqueFd epoll(epoll_create1(EPOLL_CLOEXEC));
  epoll_event readable = {.events = EPOLLIN, .data = {}};
  if (!epoll.valid() || epoll_ctl(epoll.get(), EPOLL_CTL_ADD, pipe.get(), &readable) != 0) {
    return absl::ErrnoToStatus(errno, "watching the output of a child");
  }
  auto output = absl::WrapUnique(new ChildOutput(std::move(epoll), std::move(pipe)));
  return Made{.output = std::move(output), .end = std::move(end)};
}

std::string ChildOutput::LastLines() {
  while (Progress() > 0) {
  }
  absl::string_view lines = kept_;
  // What was cut in front is no line.
  if (lines.size() == kKeptBytesMax) lines.remove_prefix(lines.find('\n') + 1);
  return std::string(absl::StripAsciiWhitespace(lines));
}

int ChildOutput::Progress() {
  std::array<char, kKeptBytesMax> bytes;
  const ssize_t size = read(pipe_.get(), bytes.data(), bytes.size());
  // Else it would be readable for ever where the child hangs in the middle of its end.
  if (size == 0) pipe_.Reset();
  if (size <= 0) return 0;
  kept_.append(bytes.data(), size);
  if (kept_.size() > kKeptBytesMax) kept_.erase(0, kept_.size() - kKeptBytesMax);
  return 1;
}

}  // namespace crossmesh

#pragma once

#include "common/base/unique_fd.h"

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <sys/types.h>
#include <sys/uio.h>

namespace crossmesh {

struct SocketConnection;

struct FilePart {
  int fd = -1;
  off_t offset = 0;
  size_t bytes = 0;
};

// One TCP connection as the loop drives it; two kinds, one for each direction of messages. A status
// that is not OK ends it: InvalidArgument where the other side broke the protocol, else
// Unavailable. Confined to the loop.
class SocketStream {
 public:
  // Streams with work that waits for no event, each once.
  using WorkList = std::vector<SocketStream*>;

  SocketStream(const SocketStream&) = delete;
  SocketStream& operator=(const SocketStream&) = delete;
  virtual ~SocketStream() = default;

  // Reads and handles what has come, about `bytes_max` bytes at most.
  virtual absl::Status Read(size_t bytes_max) = 0;
  // The stream was on the work list, and is taken off it. Does about `bytes_max` bytes of work at
  // most; where more is left it puts itself on the list again.
  absl::Status Work(size_t bytes_max);
  // Closes the socket and completes everything outstanding with `why`. Repeatable.
  void End(const absl::Status& why);

  bool ended() const { return !fd_.valid(); }
  int fd() const { return fd_.get(); }
  // The socket takes no more bytes; call Unblock when it does again.
  bool blocked() const { return blocked_; }
  void Unblock();

  // The transport's notes.
  SocketConnection* connection = nullptr;  // none: it has not said which it is of
  std::string other_side;                  // its IP address and port
  bool watched_for_writing = false;
  bool silent_since_tick = false;

 protected:
  SocketStream(UniqueFd fd, WorkList& work_list) : fd_(std::move(fd)), work_list_(work_list) {}

  void WantWork();
  // Both return the bytes that passed, none when the socket has to be waited for.
  absl::StatusOr<size_t> ReadInto(std::span<const iovec> list);
  // `more`: is written next, and may go in one packet with it.
  absl::StatusOr<size_t> WriteFrom(std::span<const iovec> list, bool more = false);
  // The same of a part of a file, whose pages the system takes: what they hold when the other side
  // reads them is what it gets. Nothing when that cannot be; why, WriteFrom tells.
  std::optional<size_t> WritePages(const FilePart& part);
  // The last ReadInto left nothing.
  bool drained() const { return drained_; }

 private:
  virtual absl::Status DoWork(size_t bytes_max) = 0;
  virtual void CompleteAll(const absl::Status& why) = 0;

  UniqueFd fd_;
  WorkList& work_list_;
  bool listed_ = false;
  bool blocked_ = false;
  bool drained_ = false;
};

}  // namespace crossmesh

#pragma once

#include "common/base/unique_fd.h"

#include <cstddef>
#include <cstring>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <absl/strings/string_view.h>

namespace crossmesh {

template <typename T>
  requires std::is_trivially_copyable_v<T>
std::string BytesOfObject(const T& object) {
  return {reinterpret_cast<const char*>(&object), sizeof(object)};
}

// What `bytes` begin with; the rest is less than one.
template <typename T>
  requires std::is_trivially_copyable_v<T>
std::vector<T> ObjectsOf(absl::string_view bytes) {
  std::vector<T> objects(bytes.size() / sizeof(T));
  if (!objects.empty()) std::memcpy(objects.data(), bytes.data(), objects.size() * sizeof(T));
  return objects;
}

// The other end of one SocketStream, in the test's own thread: what one end has sent the other can
// read at once. Nothing blocks. Thread-compatible.
class StreamPeer {
 public:
  StreamPeer();

  // The stream's end. At most once.
  UniqueFd TakeOther() { return std::move(other_); }
  // All of it, or the test fails.
  void Send(absl::string_view bytes);
  // All that the stream has sent.
  std::string ReadBytes();
  template <typename T>
  std::vector<T> ReadObjects() {
    return ObjectsOf<T>(ReadBytes());
  }
  // Has the stream closed its end? Only once all that it has sent is read.
  bool IsClosed();
  void Close() { own_.Reset(); }

  // How many bytes have come to the end `fd` that are not read.
  static size_t Unread(int fd);
  // The end `fd` takes as few bytes that are not read as the system allows; returns how many.
  static size_t LimitBytesOnTheWay(int fd);

 private:
  UniqueFd own_;
  UniqueFd other_;
};

}  // namespace crossmesh

#pragma once

#include <utility>

namespace crossmesh {

// Owns a file descriptor and closes it. Thread-compatible.
class UniqueFd {
 public:
  static constexpr int kNone = -1;

  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, kNone)) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    Reset(std::exchange(other.fd_, kNone));
    return *this;
  }
  ~UniqueFd() { Reset(); }

  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }

  // Gives up ownership without closing.
  [[nodiscard]] int Release() { return std::exchange(fd_, kNone); }

  // Closes what is owned, if anything, and owns `fd` instead.
  void Reset(int fd = kNone);

 private:
  int fd_ = kNone;
};

}  // namespace crossmesh

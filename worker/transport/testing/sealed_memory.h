#pragma once

#include "common/base/unique_fd.h"
#include "worker/transport/pieces.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace crossmesh {

// Memory that a transport may be lent. Thread-compatible.
class SealedMemory {
 public:
  // The name of its file, by which its mappings are found.
  static constexpr char kName[] = "sealed_memory_of_a_test";

  static std::unique_ptr<SealedMemory> Create(size_t bytes);
  ~SealedMemory();
  SealedMemory(const SealedMemory&) = delete;
  SealedMemory& operator=(const SealedMemory&) = delete;

  std::span<std::byte> bytes() const { return bytes_; }
  int fd() const { return fd_.get(); }
  uint64_t inode() const;
  LentMemory lent() const { return {.bytes = bytes_, .fd = fd()}; }

  // How many mappings of such memory this process has.
  static int CountMappings();

 private:
  SealedMemory(UniqueFd fd, std::span<std::byte> bytes) : fd_(std::move(fd)), bytes_(bytes) {}

  const UniqueFd fd_;
  const std::span<std::byte> bytes_;
};

}  // namespace crossmesh

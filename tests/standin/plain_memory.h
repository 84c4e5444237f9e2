#pragma once

#include "tests/standin/stand_in.h"

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

namespace crossmesh {

// Memory of cuMemAlloc, as a user process has it: by calls that the product does not make. Of the
// context that is current; freed when it goes.
class PlainMemory {
 public:
  static absl::StatusOr<std::unique_ptr<PlainMemory>> Create(const StandIn& stand_in, size_t bytes);
  ~PlainMemory();
  PlainMemory(const PlainMemory&) = delete;
  PlainMemory& operator=(const PlainMemory&) = delete;

  std::span<std::byte> bytes() const { return {reinterpret_cast<std::byte*>(address_), size_}; }
  // The bytes of its CUipcMemHandle.
  const std::string& ipc_handle() const { return ipc_handle_; }

 private:
  explicit PlainMemory(size_t bytes) : size_(bytes) {}

  const size_t size_;
  CUdeviceptr address_ = 0;  // 0: none
  std::string ipc_handle_;
};

}  // namespace crossmesh

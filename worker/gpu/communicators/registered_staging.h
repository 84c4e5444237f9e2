#pragma once

#include "worker/gpu/libraries/nccl_api.h"

#include <cstdint>
#include <memory>

#include <absl/status/statusor.h>
#include <cuda.h>

namespace crossmesh {

// Memory of a GPU that NCCL sends from and receives into without copies of its own: of
// ncclMemAlloc, to be registered once with each communicator that uses it. Outlives these.
// Immutable; the bytes belong to the tasks that use them.
class RegisteredStaging {
 public:
  // Of the current context's GPU. ResourceExhausted when NCCL cannot allocate `bytes`.
  static absl::StatusOr<std::unique_ptr<RegisteredStaging>> Allocate(const NcclApi& nccl,
                                                                     int64_t bytes);
  ~RegisteredStaging();
  RegisteredStaging(const RegisteredStaging&) = delete;
  RegisteredStaging& operator=(const RegisteredStaging&) = delete;

  CUdeviceptr address() const { return reinterpret_cast<CUdeviceptr>(memory_); }
  int64_t bytes() const { return bytes_; }

 private:
  RegisteredStaging(const NcclApi& nccl, void* memory, int64_t bytes)
      : nccl_(nccl), memory_(memory), bytes_(bytes) {}

  const NcclApi& nccl_;
  void* const memory_;
  const int64_t bytes_;
};

}  // namespace crossmesh

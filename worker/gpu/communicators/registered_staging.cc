#include "worker/gpu/communicators/registered_staging.h"

#include "common/base/log.h"

#include <absl/memory/memory.h>
#include <absl/strings/str_cat.h>

namespace crossmesh {

absl::StatusOr<std::unique_ptr<RegisteredStaging>> RegisteredStaging::Allocate(const NcclApi& nccl,
                                                                               int64_t bytes) {
  void* memory = nullptr;
  if (const absl::Status status = nccl.Check(nccl.ncclMemAlloc(&memory, bytes), "ncclMemAlloc");
      !status.ok()) {
    // NCCL does not tell lack of memory from other errors of CUDA.
    return absl::ResourceExhaustedError(
        absl::StrCat("staging of ", bytes, " bytes: ", status.message()));
  }
  return absl::WrapUnique(new RegisteredStaging(nccl, memory, bytes));
}

RegisteredStaging::~RegisteredStaging() {
  const absl::Status status = nccl_.Check(nccl_.ncclMemFree(memory_), "ncclMemFree");
  if (!status.ok()) LogError("staging_not_freed", {{"cause", status.ToString()}});
}

}  // namespace crossmesh

#pragma once

#include "tests/standin/control/stand_in_control.h"
#include "worker/gpu/libraries/driver_api.h"
#include "worker/gpu/libraries/nccl_api.h"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

namespace crossmesh {

// The files of this build that stand in for the driver and NCCL, as options of DriverApi and
// NcclApi.
std::string StandInDriverPath();
std::string StandInNcclPath();
// Of NCCL M2N, as an option of M2nApi.
std::string StandInM2nPath();
// The product's kernels as host functions, for CROSSMESH_STANDIN_KERNELS.
std::string StandInKernelsPath();
// Of its GPU of this number, below 256.
std::string StandInUuid(int number);

// Both stand-ins, loaded into this process by the product's own binding, and their control. What
// they keep is the process's: an object sees what has happened since it was made. The environment
// counts when the first is made. Immutable.
class StandIn {
 public:
  static absl::StatusOr<std::unique_ptr<StandIn>> Load();

  const DriverApi& driver() const { return *driver_; }
  const NcclApi& nccl() const { return *nccl_; }

  // InvalidArgument when the text cannot be read; the README has the names.
  absl::Status SetFaults(const std::string& faults) const;
  // `kernel` is copied, what it points to is not.
  void AddKernel(const StandInKernel& kernel) const { add_kernel_(&kernel); }
  // What was done wrong.
  std::vector<std::string> Violations() const;
  std::vector<StandInCall> Calls() const;
  // Of a call's stream, which is there: 0, or less for one that goes before others.
  int PriorityOf(const void* stream) const;

  absl::Status Check(CUresult result, absl::string_view call) const {
    return driver_->Check(result, call);
  }
  absl::Status Check(ncclResult_t result, absl::string_view call) const {
    return nccl_->Check(result, call);
  }

 private:
  StandIn() = default;

  std::unique_ptr<const DriverApi> driver_;
  std::unique_ptr<const NcclApi> nccl_;
  decltype(&crossmeshStandInAddKernel) add_kernel_ = nullptr;
  decltype(&crossmeshStandInReadLog) read_log_ = nullptr;
  decltype(&crossmeshStandInSetFaults) set_faults_ = nullptr;
  decltype(&crossmeshStandInStreamPriority) stream_priority_ = nullptr;
  decltype(&crossmeshStandInViolation) violation_ = nullptr;
  decltype(&crossmeshStandInViolationCount) violation_count_ = nullptr;
  int64_t first_violation_ = 0;
  int64_t first_call_ = 0;
};

}  // namespace crossmesh

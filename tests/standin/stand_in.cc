#include "tests/standin/stand_in.h"

#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "worker/gpu/libraries/shared_library.h"

#include <absl/memory/memory.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>

namespace crossmesh {

std::string StandInDriverPath() { return CROSSMESH_STANDIN_FOLDER "/libcuda.so.1"; }
std::string StandInNcclPath() { return CROSSMESH_STANDIN_FOLDER "/libnccl.so.2"; }
std::string StandInM2nPath() { return CROSSMESH_STANDIN_FOLDER "/libnccl_m2n.so.0"; }
std::string StandInKernelsPath() {
  return CROSSMESH_STANDIN_FOLDER "/libcrossmesh_host_kernels.so.1";
}
std::string StandInUuid(int number) {
  return absl::StrFormat("GPU-7374616e-6469-6e00-%02x00-000000000000", number);
}

absl::StatusOr<std::unique_ptr<StandIn>> StandIn::Load() {
  auto stand_in = absl::WrapUnique(new StandIn);
  // In this order: the one for NCCL needs the one for the driver, and finds it loaded.
  ASSIGN_OR_RETURN(stand_in->driver_, DriverApi::Load({.library = StandInDriverPath()}));
  ASSIGN_OR_RETURN(stand_in->nccl_, NcclApi::Load({.library = StandInNcclPath()}));
  ASSIGN_OR_RETURN(const SharedLibrary library, SharedLibrary::Load(StandInDriverPath()));
  CHECK(library.Resolve("crossmeshStandInAddKernel", stand_in->add_kernel_));
  CHECK(library.Resolve("crossmeshStandInReadLog", stand_in->read_log_));
  CHECK(library.Resolve("crossmeshStandInSetFaults", stand_in->set_faults_));
  CHECK(library.Resolve("crossmeshStandInStreamPriority", stand_in->stream_priority_));
  CHECK(library.Resolve("crossmeshStandInViolation", stand_in->violation_));
  CHECK(library.Resolve("crossmeshStandInViolationCount", stand_in->violation_count_));
  stand_in->first_violation_ = stand_in->violation_count_();
  stand_in->first_call_ = stand_in->read_log_(0, nullptr, 0);
  return stand_in;
}

absl::Status StandIn::SetFaults(const std::string& faults) const {
  if (set_faults_(faults.c_str()) == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("faults '", faults, "' cannot be read"));
}

std::vector<std::string> StandIn::Violations() const {
  std::vector<std::string> violations;
  for (int64_t i = first_violation_; i < violation_count_(); ++i) {
    violations.emplace_back(violation_(i));
  }
  return violations;
}

int StandIn::PriorityOf(const void* stream) const {
  return stream_priority_(static_cast<CUstream>(const_cast<void*>(stream)));
}

std::vector<StandInCall> StandIn::Calls() const {
  std::vector<StandInCall> calls(read_log_(first_call_, nullptr, 0));
  read_log_(first_call_, calls.data(), static_cast<int64_t>(calls.size()));
  return calls;
}

}  // namespace crossmesh

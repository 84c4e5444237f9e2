#pragma once

#include "common/communicators/preflight_report.h"

#include <cstdint>
#include <span>

#include <absl/status/status.h>

namespace crossmesh {

// Whether the ranks that report fit together in one communicator, which takes about `bytes_needed`
// of each one's memory. FailedPrecondition, with the ranks, the field and what each has, when
//
//   - two have another version of NCCL;
//   - two have another value of a variable that begins with NCCL_, but for those that name what is
//     of a host, such as NCCL_SOCKET_IFNAME: NCCL_CUMEM_ENABLE that differs is a hang;
//   - two are on one GPU and do not both say NCCL_MULTI_RANK_GPU_ENABLE=1;
//   - one has less memory free.
//
// All are compared with the first, in order, so the answer depends on the reports alone. Drivers
// may differ, as hosts do while they are upgraded.
absl::Status ComparePreflights(std::span<const PreflightReport> reports, int64_t bytes_needed);

}  // namespace crossmesh

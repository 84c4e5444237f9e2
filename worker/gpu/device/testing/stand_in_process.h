#pragma once

#include "common/base/status_macros.h"
#include "tests/standin/rank_processes.h"
#include "tests/standin/stand_in.h"
#include "worker/gpu/device/gpu.h"

#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>

namespace crossmesh {

// A process of a test, with the stand-ins and their first GPU, which is the same one in every
// process.
struct StandInProcess {
  static absl::StatusOr<StandInProcess> Create() {
    setenv("CROSSMESH_STANDIN_KERNELS", StandInKernelsPath().c_str(), 1);
    StandInProcess made;
    ASSIGN_OR_RETURN(made.stand_in, StandIn::Load());
    ASSIGN_OR_RETURN(const std::vector<std::string> uuids, Gpu::Uuids(made.stand_in->driver()));
    ASSIGN_OR_RETURN(made.gpu, Gpu::Create(made.stand_in->driver(), uuids.at(0)));
    return made;
  }

  const DriverApi& driver() const { return stand_in->driver(); }

  // Gives the GPU back; an error if anything was done wrong.
  absl::Status End() {
    gpu.reset();
    const std::vector<std::string> violations = stand_in->Violations();
    if (violations.empty()) return absl::OkStatus();
    return absl::InternalError(absl::StrJoin(violations, "; "));
  }

  std::unique_ptr<StandIn> stand_in;
  std::unique_ptr<Gpu> gpu;
};

// For what GoogleTest cannot report, since it is in another process than the test.
inline absl::Status Expect(bool is_so, absl::string_view what) {
  return is_so ? absl::OkStatus() : absl::UnknownError(absl::StrCat("expected: ", what));
}

}  // namespace crossmesh

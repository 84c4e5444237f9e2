#include "controller/operation/worker_error.h"

#include <absl/strings/str_cat.h>
#include <absl/strings/strip.h>

namespace crossmesh {

absl::string_view ReasonOf(absl::string_view worker, const absl::Status& status) {
  return absl::StripPrefix(status.message(), absl::StrCat("worker ", worker, ": "));
}

absl::Status AboutWorker(absl::string_view worker, const absl::Status& status) {
  if (worker.empty()) return status;
  return absl::Status(status.code(),
                      absl::StrCat("worker ", worker, ": ", ReasonOf(worker, status)));
}

}  // namespace crossmesh

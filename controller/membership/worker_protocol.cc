#include "controller/membership/worker_protocol.h"

#include "common/base/version.h"

#include <absl/strings/escaping.h>
#include <absl/strings/str_cat.h>

namespace crossmesh {

absl::Status CheckSpeaks(const WorkerRecord& worker, int32_t protocol, absl::string_view what) {
  if (worker.protocol >= protocol) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("worker ", worker.name, ": expected one that knows ", what,
                   ", as this controller of version ", Version(), " does, found version ",
                   absl::CHexEscape(worker.version), ", which does not; upgrade the worker"));
}

}  // namespace crossmesh

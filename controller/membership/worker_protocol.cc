#include "controller/membership/worker_protocol.h"

#include "common/base/version.h"

#include <algorithm>

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

absl::Status CheckSpeakAlike(const std::vector<WorkerRecord>& workers, absl::string_view what) {
  const auto other = std::ranges::find_if(workers, [&](const WorkerRecord& worker) {
    return worker.protocol != workers.front().protocol;
  });
  if (other == workers.end()) return absl::OkStatus();
  const auto text = [](const WorkerRecord& worker) {
    return absl::StrCat("worker ", worker.name, " of version ", absl::CHexEscape(worker.version));
  };
  return absl::FailedPreconditionError(
      absl::StrCat(what, ": expected workers of one release, found ", text(workers.front()),
                   " and ", text(*other), "; upgrade the older one"));
}

}  // namespace crossmesh

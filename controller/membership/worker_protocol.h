#pragma once

#include "controller/membership/worker_registry.h"

#include <cstdint>
#include <vector>

#include <absl/status/status.h>
#include <absl/strings/string_view.h>

namespace crossmesh {

// May the worker be asked for `what`, e.g. "layer programs", which came with this protocol of
// sessions? FailedPrecondition names the worker and both versions. An older worker would not refuse
// what it is asked: it leaves out what it does not know.
absl::Status CheckSpeaks(const WorkerRecord& worker, int32_t protocol, absl::string_view what);

// May they do together what workers of two releases do each in a way of its own, e.g. "a
// rehearsal"? FailedPrecondition names two that may not, with their versions.
absl::Status CheckSpeakAlike(const std::vector<WorkerRecord>& workers, absl::string_view what);

}  // namespace crossmesh

// What requests and notices have in common on the wire.

#pragma once

#include "common/base/digest.h"
#include "crossmesh/v1/gpu_process.pb.h"
#include "worker/executor/task.h"

#include <cstdint>
#include <string>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>

namespace crossmesh {

absl::Status Malformed(absl::string_view field, absl::string_view expected,
                       absl::string_view found);
// InvalidArgument unless the number is from `least` on.
absl::Status CheckNumber(absl::string_view field, int64_t number, int64_t least);

v1::GpuStatus ToProto(const absl::Status& status);
// Codes that are none are Unknown.
absl::Status FromProto(const v1::GpuStatus& proto);
// Why something ends: Unknown, too, where no error is given.
absl::Status CauseFromProto(const v1::GpuStatus& proto);

v1::GpuTaskKey ToProto(const TaskKey& key);
TaskKey FromProto(const v1::GpuTaskKey& proto);

absl::StatusOr<Digest> ParseDigest(absl::string_view field, const std::string& hex);

}  // namespace crossmesh

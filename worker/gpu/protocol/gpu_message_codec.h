// The messages between a worker and the process of a GPU as bytes, at both ends. Every decoder
// answers InvalidArgument, naming the field, for anything that Encode does not make.

#pragma once

#include "worker/gpu/protocol/gpu_notice.h"
#include "worker/gpu/protocol/gpu_request.h"

#include <string>

#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>

namespace crossmesh {

std::string Encode(const GpuRequest& request);
absl::StatusOr<GpuRequest> DecodeGpuRequest(absl::string_view bytes);

std::string Encode(const GpuNotice& notice);
absl::StatusOr<GpuNotice> DecodeGpuNotice(absl::string_view bytes);

// "CreateArena", for errors and logs.
absl::string_view NameOf(const GpuRequest::Body& body);

}  // namespace crossmesh

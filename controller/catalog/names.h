#pragma once

#include <absl/status/status.h>
#include <absl/strings/string_view.h>

namespace crossmesh {

// InvalidArgument unless `name` matches [a-z0-9._-]{1,63}; `kind` ("mesh") goes into the message.
absl::Status CheckObjectName(absl::string_view kind, absl::string_view name);
// InvalidArgument unless `id` matches [a-zA-Z0-9._-]{1,63}.
absl::Status CheckRequestId(absl::string_view id);

}  // namespace crossmesh

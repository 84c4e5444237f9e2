#pragma once

#include <absl/status/status.h>
#include <absl/strings/string_view.h>

namespace crossmesh {

// InvalidArgument, naming kind and name, unless `name` matches [a-z0-9._-]{1,63}: what meshes,
// manifests, workers and storages are called. `kind` is for the message, e.g. "mesh".
absl::Status CheckObjectName(absl::string_view kind, absl::string_view name);

// The same for a request id, [a-zA-Z0-9._-]{1,63}.
absl::Status CheckRequestId(absl::string_view id);

}  // namespace crossmesh

#pragma once

#include <absl/status/status.h>
#include <absl/strings/string_view.h>

namespace crossmesh {

// Does `name` match [a-z0-9._-]{1,63}? So meshes, manifests, workers and storages are called.
bool IsObjectName(absl::string_view name);

// InvalidArgument, naming kind and name, unless it does. `kind` is for the message, e.g. "mesh".
absl::Status CheckObjectName(absl::string_view kind, absl::string_view name);

// The same for a request id, [a-zA-Z0-9._-]{1,63}.
absl::Status CheckRequestId(absl::string_view id);

}  // namespace crossmesh

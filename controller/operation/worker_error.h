#pragma once

#include <absl/status/status.h>
#include <absl/strings/string_view.h>

namespace crossmesh {

// The error's message without "worker NAME: ", with which workers begin what they say of
// themselves.
absl::string_view ReasonOf(absl::string_view worker, const absl::Status& status);

// The same error with "worker NAME: " before its message, unless the worker has said that itself,
// or there is none: `worker` is empty.
absl::Status AboutWorker(absl::string_view worker, const absl::Status& status);

}  // namespace crossmesh

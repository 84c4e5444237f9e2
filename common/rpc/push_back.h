#pragma once

#include <optional>

#include <absl/status/status.h>
#include <absl/strings/string_view.h>
#include <absl/time/time.h>

namespace crossmesh {

// The same error with when the caller is to try again: in its message, and in its
// google.rpc.ErrorInfo (reason PUSHED_BACK, metadata "retry_after_ms").
absl::Status WithPushBack(const absl::Status& status, absl::Duration retry_after);

// What a server answers that has too much to do for now: Unavailable, with push-back.
absl::Status PushBackError(absl::string_view message, absl::Duration retry_after);

// The time that such an error names, from 0 to a minute; nothing of others.
std::optional<absl::Duration> PushBackOf(const absl::Status& status);

}  // namespace crossmesh

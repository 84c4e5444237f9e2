#include "common/rpc/push_back.h"

#include "common/rpc/error_details.h"

#include <algorithm>
#include <cstdint>
#include <string>

#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

constexpr const char* kPushedBack = "PUSHED_BACK";
constexpr const char* kRetryAfterMs = "retry_after_ms";
constexpr absl::Duration kRetryAfterMax = absl::Minutes(1);

}  // namespace

absl::Status WithPushBack(const absl::Status& status, absl::Duration retry_after) {
  const int64_t milliseconds =
      absl::ToInt64Milliseconds(absl::Ceil(retry_after, absl::Milliseconds(1)));
  absl::Status pushed(status.code(),
                      absl::StrCat(status.message(), "; try again in ",
                                   absl::FormatDuration(absl::Milliseconds(milliseconds))));
  SetErrorReason(pushed, kPushedBack);
  SetErrorDetail(pushed, kRetryAfterMs, absl::StrCat(milliseconds));
  return pushed;
}

absl::Status PushBackError(absl::string_view message, absl::Duration retry_after) {
  return WithPushBack(absl::UnavailableError(message), retry_after);
}

std::optional<absl::Duration> PushBackOf(const absl::Status& status) {
  if (ErrorReasonOf(status) != kPushedBack) return std::nullopt;
  const std::optional<std::string> text = ErrorDetailOf(status, kRetryAfterMs);
  int64_t milliseconds = 0;
  if (!text.has_value() || !absl::SimpleAtoi(*text, &milliseconds)) return std::nullopt;
  return std::clamp(absl::Milliseconds(milliseconds), absl::ZeroDuration(), kRetryAfterMax);
}

}  // namespace crossmesh

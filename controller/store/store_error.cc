#include "controller/store/store_error.h"

#include "common/base/error_place.h"

#include <array>

#include <absl/strings/cord.h>

namespace crossmesh {
namespace {

constexpr absl::string_view kReasonUrl = "crossmesh/store_error";
constexpr std::array kKinds = {StoreErrorKind::kLocked, StoreErrorKind::kTooNew,
                               StoreErrorKind::kUnusable, StoreErrorKind::kDamaged,
                               StoreErrorKind::kFull};

absl::StatusCode CodeOf(StoreErrorKind kind) {
  switch (kind) {
    case StoreErrorKind::kLocked:
    case StoreErrorKind::kTooNew:
    case StoreErrorKind::kUnusable:
      return absl::StatusCode::kFailedPrecondition;
    case StoreErrorKind::kDamaged:
      return absl::StatusCode::kDataLoss;
    case StoreErrorKind::kFull:
      return absl::StatusCode::kResourceExhausted;
  }
  return absl::StatusCode::kInternal;
}

}  // namespace

absl::string_view StoreErrorReason(StoreErrorKind kind) {
  switch (kind) {
    case StoreErrorKind::kLocked:
      return "STORE_LOCKED";
    case StoreErrorKind::kTooNew:
      return "STORE_TOO_NEW";
    case StoreErrorKind::kUnusable:
      return "STORE_UNUSABLE";
    case StoreErrorKind::kDamaged:
      return "STORE_DAMAGED";
    case StoreErrorKind::kFull:
      return "STORE_FULL";
  }
  return "";
}

absl::Status StoreError(StoreErrorKind kind, absl::string_view message) {
  absl::Status status(CodeOf(kind), message);
  status.SetPayload(kReasonUrl, absl::Cord(StoreErrorReason(kind)));
  return status;
}

absl::Status StoreErrorAt(absl::string_view where, const absl::Status& error) {
  absl::Status placed = At(where, error);
  if (const auto reason = error.GetPayload(kReasonUrl)) placed.SetPayload(kReasonUrl, *reason);
  return placed;
}

std::optional<StoreErrorKind> StoreErrorKindOf(const absl::Status& status) {
  const auto reason = status.GetPayload(kReasonUrl);
  if (!reason.has_value()) return std::nullopt;
  for (const StoreErrorKind kind : kKinds) {
    if (*reason == StoreErrorReason(kind)) return kind;
  }
  return std::nullopt;
}

}  // namespace crossmesh

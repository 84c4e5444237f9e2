#pragma once

#include <optional>
#include <ostream>

#include <absl/status/status.h>
#include <absl/strings/string_view.h>

namespace crossmesh {

// Why a store cannot be opened, read or written, where a program or an operator has to tell.
enum class StoreErrorKind {
  kLocked,    // FailedPrecondition: another process has it
  kTooNew,    // FailedPrecondition: a newer release wrote it
  kUnusable,  // FailedPrecondition: its folder, or what is there, is not what it must be
  kDamaged,   // DataLoss: what is there is not what was written
  kFull,      // ResourceExhausted: no room; nothing is written
};

// "STORE_LOCKED", "STORE_TOO_NEW", "STORE_UNUSABLE", "STORE_DAMAGED", "STORE_FULL".
absl::string_view StoreErrorReason(StoreErrorKind kind);

inline std::ostream& operator<<(std::ostream& out, StoreErrorKind kind) {
  return out << StoreErrorReason(kind);
}

// A status of the code above that remembers its kind.
absl::Status StoreError(StoreErrorKind kind, absl::string_view message);

// The error with `where` before its message, of the same code and kind.
absl::Status StoreErrorAt(absl::string_view where, const absl::Status& error);

// Nothing when it is no StoreError.
std::optional<StoreErrorKind> StoreErrorKindOf(const absl::Status& status);

}  // namespace crossmesh

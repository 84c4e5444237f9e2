#pragma once

#include "crossmesh/v1/execution_service.pb.h"

#include <cstddef>
#include <optional>
#include <string>
#include <utility>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/string_view.h>

namespace crossmesh {

// What a call is to run, as it comes in pieces. Thread-compatible.
class PieceBuffer {
 public:
  // Of all pieces together.
  static constexpr size_t kBytesMax = size_t{64} << 20;

  // All bytes with the last piece; nothing before. InvalidArgument, naming `what`: they are too
  // many.
  absl::StatusOr<std::optional<std::string>> Add(const v1::Piece& piece, absl::string_view what) {
    if (bytes_.size() + piece.data().size() > kBytesMax) {
      return absl::InvalidArgumentError(absl::StrCat(
          what, ": expected at most ", static_cast<size_t>(kBytesMax), " bytes, found more"));
    }
    bytes_.append(piece.data());
    if (!piece.last()) return std::nullopt;
    return std::exchange(bytes_, {});
  }

 private:
  std::string bytes_;  // of the pieces so far
};

}  // namespace crossmesh

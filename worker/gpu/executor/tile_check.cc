#include "worker/gpu/executor/tile_check.h"

#include <absl/strings/str_cat.h>
#include <absl/strings/string_view.h>

namespace crossmesh {
namespace {

absl::Status Refused(const CompiledPart& compiled, Side side, int32_t tensor,
                     absl::string_view problem) {
  const TensorTable& tensors = compiled.part().part().tensors();
  return absl::InvalidArgumentError(absl::StrCat(
      side == Side::kSource ? "source" : "destination", " of device ",
      ToString(tensors.devices()[compiled.device()]), ", tensor ", tensor, ": ", problem));
}

}  // namespace

absl::Status CheckTile(const CompiledPart& compiled, Side side, int32_t tensor,
                       std::span<const uint64_t> tiles) {
  const TensorTable& tensors = compiled.part().part().tensors();
  const int32_t group = tensors.group_of_tensor()[tensor];
  if (tensor >= std::ssize(tiles) || tiles[tensor] == 0) {
    const int64_t bytes = compiled.part().tiles(side, compiled.device()).tile_bytes(group);
    return Refused(compiled, side, tensor,
                   absl::StrCat("expected memory for the ", bytes, " bytes, found none"));
  }
  // Kernels that convert read elements as they are; all others read bytes.
  const int64_t item_bytes = tensors.ItemBytesOf(Side::kSource, group);
  if (side == Side::kSource && tensors.conversion_of(group) != kNoConversion &&
      tiles[tensor] % item_bytes != 0) {
    return Refused(compiled, side, tensor,
                   absl::StrCat("expected memory at a multiple of the ", item_bytes,
                                " bytes of an element, found address ", tiles[tensor]));
  }
  return absl::OkStatus();
}

}  // namespace crossmesh

#include "worker/gpu/compiler/testing/compiled_part_text.h"

#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

// " class 3 [0, 100)"
template <typename Piece>
std::string BytesOf(const Piece& piece) {
  return absl::StrCat(" class ", piece.slice_class, " [", piece.begin, ", ", piece.end, ")");
}

void AppendWait(absl::string_view waiting, int32_t step, absl::string_view of, std::string& out) {
  if (step != kNoStep) absl::StrAppend(&out, "  ", waiting, " after ", of, " ", step, "\n");
}

}  // namespace

std::string ToText(const CompiledPart& compiled) {
  const std::vector<DeviceId>& devices = compiled.part().part().tensors().devices();
  std::string out =
      absl::StrCat(ToString(devices[compiled.device()]), ", ", compiled.leaves(), " leaves, peers");
  for (const DeviceRank peer : compiled.peers())
    absl::StrAppend(&out, " ", ToString(devices[peer]));
  absl::StrAppend(&out, "\n");
  const TensorTable& tensors = compiled.part().part().tensors();
  for (const int32_t scaled : compiled.scaled()) {
    absl::StrAppend(&out, "scale tensor ", tensors.spec().scaled_tensors[scaled], "\n");
  }
  for (const CompiledPart::Step& step : compiled.steps()) {
    absl::StrAppend(&out, "step ", step.number, "\n");
    AppendWait("pack", step.pack_after_wire, "wire", out);
    AppendWait("pack", step.pack_after_unpack, "unpack", out);
    AppendWait("wire", step.wire_after_unpack, "unpack", out);
    for (const auto& pack : compiled.packs(step)) {
      absl::StrAppend(&out, "  pack", BytesOf(pack), " to ", pack.staging_offset, "\n");
    }
    for (const auto& send : compiled.sends(step)) {
      absl::StrAppend(&out, "  send ", send.bytes, " at ", send.staging_offset, " to ",
                      ToString(devices[send.peer]), "\n");
    }
    for (const auto& receive : compiled.receives(step)) {
      absl::StrAppend(&out, "  receive ", receive.bytes, " at ", receive.staging_offset, " from ",
                      ToString(devices[receive.peer]), "\n");
    }
    for (const auto& broadcast : compiled.broadcasts(step)) {
      absl::StrAppend(&out, "  broadcast ", broadcast.bytes, " at ", broadcast.staging_offset,
                      " from ", ToString(devices[broadcast.peer]), "\n");
    }
    for (const auto& unpack : compiled.unpacks(step)) {
      absl::StrAppend(&out, "  unpack", BytesOf(unpack), " at ", unpack.staging_offset, ", leaf ",
                      unpack.first_leaf, "\n");
    }
    for (const auto& copy : compiled.copies(step)) {
      absl::StrAppend(&out, "  copy", BytesOf(copy), "\n");
    }
  }
  return out;
}

}  // namespace crossmesh

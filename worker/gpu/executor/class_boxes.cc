#include "worker/gpu/executor/class_boxes.h"

#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "common/mesh/data_type.h"
#include "common/plan/packed_segments.h"
#include "worker/gpu/executor/gpu_scales.h"
#include "worker/gpu/executor/tile_check.h"
#include "worker/gpu/kernels/kernel_launches.h"

#include <limits>

#include <absl/status/status.h>

namespace crossmesh {

// Makes the boxes of classes on one side of the compiled part's device.
class ClassBoxes::Collector {
 public:
  // `scales` are those of source tiles; null at destinations.
  Collector(const CompiledPart& compiled, Side side, std::span<const uint64_t> tiles,
            const GpuScales* scales)
      : compiled_(compiled),
        side_(side),
        tiles_(tiles),
        scales_(scales),
        segments_(compiled.part().tiles(side, compiled.device())) {}

  // Of one class, after those in `boxes`; nothing when it is there already: many chunks are of one
  // class, and a kernel searches the boxes of all of it.
  absl::Status Add(ClassIndex slice_class, std::vector<KernelBox>& boxes, Ranges& ranges) {
    const auto [range, is_new] = ranges.try_emplace(slice_class);
    if (!is_new) return absl::OkStatus();
    const bool is_quantized = scales_ != nullptr && IsQuantized(slice_class);
    KernelBoxList list;
    segments_.Seek(slice_class, 0);
    for (Segment segment = segments_.Next(kAll); segment.bytes > 0;
         segment = segments_.Next(kAll)) {
      RETURN_IF_ERROR(CheckTile(compiled_, side_, segment.tensor, tiles_));
      if (is_quantized) {
        scales_->Append(segment, list);
      } else {
        list.Append(tiles_[segment.tensor] + segment.tile_offset, segment.tile_bytes,
                    segment.bytes);
      }
    }
    const int64_t first = std::ssize(boxes);
    boxes.insert(boxes.end(), list.boxes().begin(), list.boxes().end());
    // A list of more would take 96 GiB.
    CHECK_LE(std::ssize(boxes), std::numeric_limits<int32_t>::max());
    range->second = {.first = static_cast<int32_t>(first),
                     .end = static_cast<int32_t>(boxes.size())};
    return absl::OkStatus();
  }

 private:
  static constexpr int64_t kAll = std::numeric_limits<int64_t>::max();

  bool IsQuantized(ClassIndex slice_class) const {
    const ConversionIndex conversion = compiled_.part().slicing().classes()[slice_class].conversion;
    return conversion != kNoConversion &&
           compiled_.part().part().tensors().conversions()[conversion].to == DataType::kF8E4M3;
  }

  const CompiledPart& compiled_;
  const Side side_;
  const std::span<const uint64_t> tiles_;
  const GpuScales* const scales_;
  PackedSegments segments_;
};

absl::StatusOr<ClassBoxes> ClassBoxes::Create(const CompiledPart& compiled, const GpuScales& scales,
                                              std::span<const uint64_t> destinations) {
  ClassBoxes boxes;
  Collector read(compiled, Side::kSource, scales.sources(), &scales);
  Collector written(compiled, Side::kDestination, destinations, nullptr);
  for (const CompiledPart::Step& step : compiled.steps()) {
    for (const CompiledPart::Pack& pack : compiled.packs(step)) {
      RETURN_IF_ERROR(read.Add(pack.slice_class, boxes.list_, boxes.source_));
    }
    for (const CompiledPart::Unpack& unpack : compiled.unpacks(step)) {
      RETURN_IF_ERROR(written.Add(unpack.slice_class, boxes.list_, boxes.destination_));
    }
    for (const CompiledPart::Copy& copy : compiled.copies(step)) {
      RETURN_IF_ERROR(read.Add(copy.slice_class, boxes.list_, boxes.source_));
      RETURN_IF_ERROR(written.Add(copy.slice_class, boxes.list_, boxes.destination_));
    }
  }
  return boxes;
}

ClassBoxes::Range ClassBoxes::RangeOf(Side side, ClassIndex slice_class) const {
  return (side == Side::kSource ? source_ : destination_).at(slice_class);
}

std::span<const KernelBox> ClassBoxes::Of(Side side, ClassIndex slice_class) const {
  const Range range = RangeOf(side, slice_class);
  return std::span(list_).subspan(range.first, range.end - range.first);
}

}  // namespace crossmesh

#include "worker/gpu/executor/step_launches.h"

#include "worker/gpu/compiler/chunk_message.h"
#include "worker/gpu/executor/driver_copies.h"
#include "worker/gpu/kernels/kernel.h"
#include "worker/gpu/kernels/kernel_launches.h"

#include <optional>
#include <utility>

#include <absl/strings/string_view.h>

namespace crossmesh {

class StepLaunches::Builder {
 public:
  Builder(const Gpu& gpu, const CompiledPart& compiled, const ClassBoxes& boxes,
          LaunchSegments& segments)
      : compiled_(compiled),
        boxes_(boxes),
        segments_(segments),
        // What NCCL has put in place is only hashed.
        unpack_(gpu.KernelNamed<PackArguments>(compiled.is_straight() ? "crossmesh_pack"
                                                                      : "crossmesh_unpack")) {
    constexpr absl::string_view kPack = "crossmesh_pack";
    constexpr absl::string_view kCopy = "crossmesh_copy";
    readers_.push_back(
        {gpu.KernelNamed<PackArguments>(kPack), gpu.KernelNamed<CopyArguments>(kCopy)});
    for (const Conversion& conversion : compiled.part().part().tensors().conversions()) {
      readers_.push_back({gpu.KernelNamed<PackArguments>(ConvertingKernelName(kPack, conversion)),
                          gpu.KernelNamed<CopyArguments>(ConvertingKernelName(kCopy, conversion))});
    }
  }

  StepLaunches Build() {
    launches_.steps_.reserve(compiled_.steps().size());
    for (const CompiledPart::Step& step : compiled_.steps()) {
      launches_.steps_.push_back({.packs = AddPacks(step),
                                  .unpacks = AddUnpacks(step),
                                  .copies = AddCopies(step),
                                  .driver_copies = EndDriverCopies()});
    }
    return std::move(launches_);
  }

 private:
  // The kernels that read source tiles of a class, and convert it if that is to be done.
  struct Readers {
    GpuKernel<PackArguments> pack;
    GpuKernel<CopyArguments> copy;
  };

  // A launch of segments that are appended to a list one by one.
  template <class Arguments, class Segment>
  class LaunchOf {
   public:
    LaunchOf(const GpuKernel<Arguments>& kernel, std::vector<Segment>& list)
        : list_(list), launch_({.kernel = kernel, .first_segment = std::ssize(list)}) {}

    void Add(Segment segment) {
      segment.first_block = static_cast<int32_t>(launch_.blocks);
      launch_.blocks += LeavesOf(segment.begin, segment.end);
      list_.push_back(segment);
    }
    void End(std::vector<Launch<Arguments>>& launches) {
      launch_.segments = static_cast<int32_t>(std::ssize(list_) - launch_.first_segment);
      if (launch_.segments > 0) launches.push_back(launch_);
    }

   private:
    std::vector<Segment>& list_;
    Launch<Arguments> launch_;
  };

  // By which of the readers.
  size_t ReaderOf(ClassIndex slice_class) const {
    return compiled_.part().slicing().classes()[slice_class].conversion + 1;
  }

  // Of a chunk that lies at a place of staging, from which its hashes are counted as well.
  template <class Chunk>
  PackSegment SegmentOf(Side side, const Chunk& chunk) const {
    const ClassBoxes::Range boxes = boxes_.RangeOf(side, chunk.slice_class);
    return {.begin = chunk.begin,
            .end = chunk.end,
            .packed_offset = chunk.staging_offset,
            .first_box = boxes.first,
            .box_end = boxes.end};
  }
  // Of a message in staging: where its hashes are, in hashes from the staging's beginning.
  template <class Chunk>
  int64_t FirstHashOf(const Chunk& chunk) const {
    static_assert(ChunkMessage::kHashAlignment % ChunkMessage::kHashBytes == 0);
    const ChunkMessage message = compiled_.MessageOf(chunk.end - chunk.begin);
    return (chunk.staging_offset + message.hashes_offset()) / ChunkMessage::kHashBytes;
  }

  Range AddPacks(const CompiledPart::Step& step) {
    const int64_t begin = std::ssize(launches_.packs_);
    for (size_t reader = 0; reader < readers_.size(); ++reader) {
      LaunchOf launch(readers_[reader].pack, segments_.packs);
      for (const CompiledPart::Pack& pack : compiled_.packs(step)) {
        if (ReaderOf(pack.slice_class) != reader) continue;
        PackSegment segment = SegmentOf(Side::kSource, pack);
        segment.first_hash = FirstHashOf(pack);
        launch.Add(segment);
      }
      launch.End(launches_.packs_);
    }
    return {begin, std::ssize(launches_.packs_)};
  }

  Range AddUnpacks(const CompiledPart::Step& step) {
    const int64_t begin = std::ssize(launches_.unpacks_);
    LaunchOf launch(unpack_, segments_.packs);
    for (const CompiledPart::Unpack& unpack : compiled_.unpacks(step)) {
      PackSegment segment = SegmentOf(Side::kDestination, unpack);
      segment.first_hash = unpack.first_leaf;
      segment.first_root_hash = FirstHashOf(unpack);
      launch.Add(segment);
    }
    launch.End(launches_.unpacks_);
    return {begin, std::ssize(launches_.unpacks_)};
  }

  Range AddCopies(const CompiledPart::Step& step) {
    const int64_t begin = std::ssize(launches_.copies_);
    for (size_t reader = 0; reader < readers_.size(); ++reader) {
      LaunchOf launch(readers_[reader].copy, segments_.copies);
      for (const CompiledPart::Copy& copy : compiled_.copies(step)) {
        if (ReaderOf(copy.slice_class) != reader || AddDriverCopies(copy)) continue;
        const ClassBoxes::Range sources = boxes_.RangeOf(Side::kSource, copy.slice_class);
        const ClassBoxes::Range destinations = boxes_.RangeOf(Side::kDestination, copy.slice_class);
        launch.Add({.begin = copy.begin,
                    .end = copy.end,
                    .first_source = sources.first,
                    .source_end = sources.end,
                    .first_destination = destinations.first,
                    .destination_end = destinations.end});
      }
      launch.End(launches_.copies_);
    }
    return {begin, std::ssize(launches_.copies_)};
  }

  // False, and nothing added, when a kernel is to copy it.
  bool AddDriverCopies(const CompiledPart::Copy& copy) {
    if (ReaderOf(copy.slice_class) != 0) return false;
    const std::optional<std::vector<DeviceCopy>> copies = DriverCopiesOf(
        boxes_.Of(Side::kSource, copy.slice_class), boxes_.Of(Side::kDestination, copy.slice_class),
        {.begin = copy.begin, .end = copy.end});
    if (!copies.has_value()) return false;
    std::vector<DeviceCopy>& all = launches_.driver_copies_;
    all.insert(all.end(), copies->begin(), copies->end());
    return true;
  }
  // Those since the step before.
  Range EndDriverCopies() const {
    const int64_t begin = launches_.steps_.empty() ? 0 : launches_.steps_.back().driver_copies.end;
    return {begin, std::ssize(launches_.driver_copies_)};
  }

  const CompiledPart& compiled_;
  const ClassBoxes& boxes_;
  LaunchSegments& segments_;
  const GpuKernel<PackArguments> unpack_;
  std::vector<Readers> readers_;  // [conversion + 1], the first for none
  StepLaunches launches_;
};

StepLaunches StepLaunches::Create(const Gpu& gpu, const CompiledPart& compiled,
                                  const ClassBoxes& boxes, LaunchSegments& segments) {
  return Builder(gpu, compiled, boxes, segments).Build();
}

}  // namespace crossmesh

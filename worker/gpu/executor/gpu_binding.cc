#include "worker/gpu/executor/gpu_binding.h"

#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "common/mesh/data_type.h"
#include "common/plan/packed_segments.h"
#include "worker/gpu/compiler/checksum_comparison.h"
#include "worker/gpu/device/gpu_event.h"
#include "worker/gpu/device/gpu_memory.h"
#include "worker/gpu/device/registered_memory.h"
#include "worker/gpu/executor/device_pointer.h"
#include "worker/gpu/executor/gpu_scales.h"
#include "worker/gpu/executor/tile_check.h"
#include "worker/gpu/kernels/kernel.h"
#include "worker/gpu/kernels/kernel_launches.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

namespace crossmesh {
namespace {

// Unequal, so that a leaf which no kernel has written is found as a difference.
constexpr uint64_t kNoRootHash = 0;
constexpr uint64_t kNoHashInPlace = ~uint64_t{0};

}  // namespace

// Makes the boxes of classes on one side of the compiled part's device.
class GpuBinding::BoxCollector {
 public:
  // `scales` are those of source tiles; null at destinations.
  BoxCollector(const CompiledPart& compiled, Side side, std::span<const uint64_t> tiles,
               const GpuScales* scales)
      : compiled_(compiled),
        side_(side),
        tiles_(tiles),
        scales_(scales),
        segments_(compiled.part().tiles(side, compiled.device())) {}

  // Of one class, after those in `boxes`; nothing when it is there already: many chunks are of one
  // class, and a kernel searches the boxes of all of it.
  absl::Status Add(ClassIndex slice_class, std::vector<KernelBox>& boxes, BoxRanges& ranges) {
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
    CHECK_LE(std::ssize(list.boxes()), std::numeric_limits<int32_t>::max());
    range->second = {.begin = std::ssize(boxes),
                     .count = static_cast<int32_t>(list.boxes().size())};
    boxes.insert(boxes.end(), list.boxes().begin(), list.boxes().end());
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

absl::StatusOr<std::shared_ptr<GpuBinding>> GpuBinding::Create(
    Gpu& gpu, std::shared_ptr<const CompiledPart> compiled, const GpuTiles& tiles,
    const GpuStream& upload) {
  std::shared_ptr<GpuBinding> binding(new GpuBinding(std::move(compiled)));
  binding->FindKernels(gpu);
  ASSIGN_OR_RETURN(binding->scales_, GpuScales::Create(gpu, *binding->compiled_, tiles.source));
  std::vector<KernelBox> boxes;
  RETURN_IF_ERROR(binding->Collect(tiles, boxes));
  RETURN_IF_ERROR(binding->Upload(gpu, boxes, upload));
  return binding;
}

GpuBinding::GpuBinding(std::shared_ptr<const CompiledPart> compiled)
    : compiled_(std::move(compiled)) {}

GpuBinding::~GpuBinding() {
  // The copy reads pinned pages, which go with host_memory_. It waits for nothing, so it ends soon;
  // an error means that the GPU is lost, and with it the copy.
  if (uploaded_ == nullptr || !uploaded_->is_recorded()) return;
  for (absl::StatusOr<bool> is_done = false; is_done.ok() && !*is_done;) {
    is_done = uploaded_->IsDone();
  }
}

void GpuBinding::FindKernels(const Gpu& gpu) {
  constexpr absl::string_view kPack = "crossmesh_pack";
  constexpr absl::string_view kCopy = "crossmesh_copy";
  source_kernels_.push_back(
      {gpu.KernelNamed<PackArguments>(kPack), gpu.KernelNamed<CopyArguments>(kCopy)});
  for (const Conversion& conversion : compiled_->part().part().tensors().conversions()) {
    source_kernels_.push_back(
        {gpu.KernelNamed<PackArguments>(ConvertingKernelName(kPack, conversion)),
         gpu.KernelNamed<CopyArguments>(ConvertingKernelName(kCopy, conversion))});
  }
}

absl::Status GpuBinding::Collect(const GpuTiles& tiles, std::vector<KernelBox>& boxes) {
  BoxCollector sources(*compiled_, Side::kSource, scales_->sources(), scales_.get());
  BoxCollector destinations(*compiled_, Side::kDestination, tiles.destination, nullptr);
  for (const CompiledPart::Step& step : compiled_->steps()) {
    for (const CompiledPart::Pack& pack : compiled_->packs(step)) {
      RETURN_IF_ERROR(sources.Add(pack.slice_class, boxes, source_));
    }
    for (const CompiledPart::Unpack& unpack : compiled_->unpacks(step)) {
      RETURN_IF_ERROR(destinations.Add(unpack.slice_class, boxes, destination_));
    }
    for (const CompiledPart::Copy& copy : compiled_->copies(step)) {
      RETURN_IF_ERROR(sources.Add(copy.slice_class, boxes, source_));
      RETURN_IF_ERROR(destinations.Add(copy.slice_class, boxes, destination_));
    }
  }
  return absl::OkStatus();
}

absl::Status GpuBinding::Upload(Gpu& gpu, const std::vector<KernelBox>& boxes,
                                const GpuStream& upload) {
  const auto of_boxes = std::as_bytes(std::span(boxes));
  const auto of_matrices = std::as_bytes(std::span(scales_->matrices()));
  const int64_t kept_bytes = agreement_bytes() + hash_bytes();
  const ByteCount bytes(std::ssize(of_boxes) + std::ssize(of_matrices));
  ASSIGN_OR_RETURN(host_memory_, RegisteredMemory::Create(gpu, ByteCount(kept_bytes) + bytes));
  ASSIGN_OR_RETURN(boxes_, GpuMemory::Create(gpu, bytes, {}));
  ASSIGN_OR_RETURN(uploaded_, GpuEvent::Create(gpu));
  matrices_offset_ = std::ssize(of_boxes);
  // By way of pinned memory: a copy from other pages may make the caller wait.
  if (bytes.value() > 0) {
    const std::span<std::byte> pinned = host_memory_->bytes().subspan(kept_bytes);
    std::ranges::copy(of_boxes, pinned.begin());
    std::ranges::copy(of_matrices, pinned.begin() + matrices_offset_);
    RETURN_IF_ERROR(host_memory_->CopyToGpu(pinned, boxes_->address(), upload));
  }
  return uploaded_->Record(upload);
}

GpuBinding::Boxes GpuBinding::boxes(Side side, ClassIndex slice_class) const {
  const BoxRange& range = (side == Side::kSource ? source_ : destination_).at(slice_class);
  return {.list = DevicePointer<const KernelBox>(boxes_->address()) + range.begin,
          .count = range.count};
}

const SourceKernels& GpuBinding::source_kernels(ClassIndex slice_class) const {
  const SliceClass& of_class = compiled_->part().slicing().classes()[slice_class];
  return source_kernels_[of_class.conversion + 1];
}

ScaleArguments GpuBinding::scaling() const {
  return {.matrices = DevicePointer<const ScaledMatrix>(boxes_->address() + matrices_offset_),
          .matrix_count = static_cast<int32_t>(scales_->matrices().size())};
}

void GpuBinding::Prepare(const TaskKey& key) {
  std::ranges::fill(agreements(), ExecutionAgreement());
  agreements().front() = ExecutionAgreement::Of(compiled_->agreement(), key);
  std::ranges::fill(both_hashes().first(compiled_->leaves()), kNoRootHash);
  std::ranges::fill(both_hashes().subspan(compiled_->leaves()), kNoHashInPlace);
}

uint64_t* GpuBinding::root_hashes_on_gpu() const {
  if (!compiled_->checksums()) return nullptr;
  return DevicePointer<uint64_t>(host_memory_->device_address() + agreement_bytes());
}

uint64_t* GpuBinding::hashes_in_place_on_gpu() const {
  if (!compiled_->checksums()) return nullptr;
  return root_hashes_on_gpu() + compiled_->leaves();
}

LeafHashes GpuBinding::hashes() const {
  return {.of_root = both_hashes().first(compiled_->leaves()),
          .in_place = both_hashes().subspan(compiled_->leaves())};
}

std::span<ExecutionAgreement> GpuBinding::agreements() const {
  return {reinterpret_cast<ExecutionAgreement*>(host_memory_->bytes().data()),
          static_cast<size_t>(1 + AgreementsTold(*compiled_))};
}

std::span<uint64_t> GpuBinding::both_hashes() const {
  return {reinterpret_cast<uint64_t*>(host_memory_->bytes().data() + agreement_bytes()),
          static_cast<size_t>(2 * compiled_->leaves())};
}

int64_t GpuBinding::scale_blocks() const { return scales_->blocks(); }

int64_t GpuBinding::agreement_bytes() const {
  return (1 + AgreementsTold(*compiled_)) * static_cast<int64_t>(sizeof(ExecutionAgreement));
}

int64_t GpuBinding::hash_bytes() const {
  return 2 * compiled_->leaves() * static_cast<int64_t>(sizeof(uint64_t));
}

}  // namespace crossmesh

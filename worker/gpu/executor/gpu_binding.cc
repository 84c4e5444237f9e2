#include "worker/gpu/executor/gpu_binding.h"

#include "common/base/status_macros.h"
#include "worker/gpu/compiler/checksum_comparison.h"
#include "worker/gpu/device/gpu_event.h"
#include "worker/gpu/device/gpu_memory.h"
#include "worker/gpu/device/registered_memory.h"
#include "worker/gpu/executor/class_boxes.h"
#include "worker/gpu/executor/device_pointer.h"
#include "worker/gpu/executor/gpu_scales.h"
#include "worker/gpu/executor/m2n_tensor_list.h"

#include <algorithm>
#include <array>
#include <utility>

namespace crossmesh {
namespace {

// Unequal, so that a leaf which no kernel has written is found as a difference.
constexpr uint64_t kNoRootHash = 0;
constexpr uint64_t kNoHashInPlace = ~uint64_t{0};

}  // namespace

absl::StatusOr<std::shared_ptr<GpuBinding>> GpuBinding::Create(
    Gpu& gpu, std::shared_ptr<const CompiledPart> compiled, const GpuTiles& tiles,
    const GpuStream& upload) {
  ASSIGN_OR_RETURN(auto scales, GpuScales::Create(gpu, *compiled, tiles.source));
  ASSIGN_OR_RETURN(const ClassBoxes boxes,
                   ClassBoxes::Create(*compiled, *scales, tiles.destination));
  Lists lists{.boxes = boxes.list(), .segments = {}, .matrices = scales->matrices()};
  StepLaunches launches = StepLaunches::Create(gpu, *compiled, boxes, lists.segments);
  std::shared_ptr<GpuBinding> binding(
      new GpuBinding(std::move(compiled), std::move(scales), std::move(launches)));
  ASSIGN_OR_RETURN(binding->m2n_, M2nTensorList::Create(binding->compiled(), tiles));
  RETURN_IF_ERROR(binding->Upload(gpu, lists, upload));
  return binding;
}

GpuBinding::GpuBinding(std::shared_ptr<const CompiledPart> compiled,
                       std::unique_ptr<GpuScales> scales, StepLaunches launches)
    : compiled_(std::move(compiled)), scales_(std::move(scales)), launches_(std::move(launches)) {}

std::span<const M2nTensor> GpuBinding::m2n_tensors() const { return m2n_->tensors(); }

GpuBinding::~GpuBinding() {
  // The copy reads pinned pages, which go with host_memory_. It waits for nothing, so it ends soon;
  // an error means that the GPU is lost, and with it the copy.
  if (uploaded_ == nullptr || !uploaded_->is_recorded()) return;
  for (absl::StatusOr<bool> is_done = false; is_done.ok() && !*is_done;) {
    is_done = uploaded_->IsDone();
  }
}

absl::Status GpuBinding::Upload(Gpu& gpu, const Lists& lists, const GpuStream& upload) {
  const std::array parts = {
      std::as_bytes(std::span(lists.boxes)), std::as_bytes(std::span(lists.segments.packs)),
      std::as_bytes(std::span(lists.segments.copies)), std::as_bytes(std::span(lists.matrices))};
  int64_t bytes = 0;
  for (const auto& part : parts) bytes += std::ssize(part);
  const int64_t kept_bytes = agreement_bytes() + hash_bytes();
  ASSIGN_OR_RETURN(host_memory_, RegisteredMemory::Create(gpu, ByteCount(kept_bytes + bytes)));
  ASSIGN_OR_RETURN(lists_, GpuMemory::Create(gpu, ByteCount(bytes), {}));
  ASSIGN_OR_RETURN(uploaded_, GpuEvent::Create(gpu));
  // By way of pinned memory: a copy from other pages may make the caller wait.
  const std::span<std::byte> pinned = host_memory_->bytes().subspan(kept_bytes, bytes);
  std::array<uint64_t, parts.size()> addresses = {};
  int64_t offset = 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    // The items of all lists have sizes that are multiples of 8.
    addresses[i] = lists_->address() + offset;
    std::ranges::copy(parts[i], pinned.begin() + offset);
    offset += std::ssize(parts[i]);
  }
  boxes_ = DevicePointer<const KernelBox>(addresses[0]);
  pack_segments_ = DevicePointer<const PackSegment>(addresses[1]);
  copy_segments_ = DevicePointer<const CopySegment>(addresses[2]);
  matrices_ = DevicePointer<const ScaledMatrix>(addresses[3]);
  if (bytes > 0) RETURN_IF_ERROR(host_memory_->CopyToGpu(pinned, lists_->address(), upload));
  return uploaded_->Record(upload);
}

PackArguments GpuBinding::ArgumentsOf(const StepLaunches::Launch<PackArguments>& launch) const {
  return {.boxes = boxes_,
          .segments = pack_segments_ + launch.first_segment,
          .segment_count = launch.segments};
}

CopyArguments GpuBinding::ArgumentsOf(const StepLaunches::Launch<CopyArguments>& launch) const {
  return {.sources = boxes_,
          .destinations = boxes_,
          .segments = copy_segments_ + launch.first_segment,
          .segment_count = launch.segments};
}

ScaleArguments GpuBinding::scaling() const {
  return {.matrices = matrices_, .matrix_count = static_cast<int32_t>(scales_->matrices().size())};
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

absl::Status GpuBinding::CopyRootHashes(uint64_t from, const GpuStream& stream) const {
  return host_memory_->CopyFromGpu(
      from, std::as_writable_bytes(both_hashes().first(compiled_->leaves())), stream);
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

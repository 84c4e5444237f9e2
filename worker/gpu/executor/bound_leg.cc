#include "worker/gpu/executor/bound_leg.h"

#include "common/base/status_macros.h"
#include "worker/gpu/device/registered_memory.h"
#include "worker/gpu/executor/class_boxes.h"
#include "worker/gpu/executor/collective_calls.h"
#include "worker/gpu/executor/device_pointer.h"
#include "worker/gpu/executor/gpu_scales.h"
#include "worker/gpu/executor/m2n_tensor_list.h"

#include <algorithm>
#include <utility>

namespace crossmesh {
namespace {

// Unequal, so that a leaf which no kernel has written is found as a difference.
constexpr uint64_t kNoRootHash = 0;
constexpr uint64_t kNoHashInPlace = ~uint64_t{0};

template <typename T>
void Append(const std::vector<T>& added, std::vector<T>& list) {
  list.insert(list.end(), added.begin(), added.end());
}

}  // namespace

absl::StatusOr<BoundLeg> BoundLeg::Create(Gpu& gpu, GpuLeg leg, BoundLists& lists) {
  ASSIGN_OR_RETURN(auto scales, GpuScales::Create(gpu, *leg.compiled, leg.tiles.source));
  ASSIGN_OR_RETURN(const ClassBoxes boxes,
                   ClassBoxes::Create(*leg.compiled, *scales, leg.tiles.destination));
  StepLaunches launches = StepLaunches::Create(gpu, *leg.compiled, boxes, lists.segments);
  ASSIGN_OR_RETURN(std::vector<ReductionLaunch> reductions,
                   ReductionLaunchesOf(gpu, leg, lists.reductions));
  ASSIGN_OR_RETURN(auto m2n, M2nTensorList::Create(*leg.compiled, leg.tiles));
  ASSIGN_OR_RETURN(std::vector<Collective> collectives, CollectiveCallsOf(leg));
  BoundLeg bound(std::move(leg), std::move(scales), std::move(launches));
  bound.reductions_ = std::move(reductions);
  bound.m2n_ = std::move(m2n);
  bound.collectives_ = std::move(collectives);
  bound.first_box_ = std::ssize(lists.boxes);
  bound.first_matrix_ = std::ssize(lists.matrices);
  Append(boxes.list(), lists.boxes);
  Append(bound.scales_->matrices(), lists.matrices);
  return bound;
}

BoundLeg::BoundLeg(GpuLeg leg, std::unique_ptr<GpuScales> scales, StepLaunches launches)
    : compiled_(std::move(leg.compiled)),
      ranks_in_whole_(std::move(leg.ranks_in_whole)),
      step_(leg.step),
      split_(leg.split),
      scales_(std::move(scales)),
      launches_(std::move(launches)) {}

BoundLeg::BoundLeg(BoundLeg&&) noexcept = default;
BoundLeg::~BoundLeg() = default;

void BoundLeg::Place(const ListsOnGpu& lists, RegisteredMemory& host_memory, int64_t offset) {
  lists_ = lists;
  host_memory_ = &host_memory;
  hashes_offset_ = offset;
}

std::span<const M2nTensor> BoundLeg::m2n_tensors() const { return m2n_->tensors(); }

std::span<const Collective> BoundLeg::collectives() const { return collectives_; }

PackArguments BoundLeg::ArgumentsOf(const StepLaunches::Launch<PackArguments>& launch) const {
  return {.boxes = lists_.boxes + first_box_,
          .segments = lists_.packs + launch.first_segment,
          .segment_count = launch.segments};
}

CopyArguments BoundLeg::ArgumentsOf(const StepLaunches::Launch<CopyArguments>& launch) const {
  return {.sources = lists_.boxes + first_box_,
          .destinations = lists_.boxes + first_box_,
          .segments = lists_.copies + launch.first_segment,
          .segment_count = launch.segments};
}

ReduceArguments BoundLeg::ArgumentsOf(const ReductionLaunch& launch) const {
  return {.segments = lists_.reductions + launch.first_segment,
          .segment_count = launch.segments,
          .kind = launch.kind,
          .divisor = launch.divisor};
}

ScaleArguments BoundLeg::scaling() const {
  return {.matrices = lists_.matrices + first_matrix_,
          .matrix_count = static_cast<int32_t>(scales_->matrices().size())};
}

int64_t BoundLeg::scale_blocks() const { return scales_->blocks(); }

void BoundLeg::SpoilHashes() {
  std::ranges::fill(both_hashes().first(compiled_->leaves()), kNoRootHash);
  std::ranges::fill(both_hashes().subspan(compiled_->leaves()), kNoHashInPlace);
}

uint64_t* BoundLeg::root_hashes_on_gpu() const {
  if (!compiled_->checksums()) return nullptr;
  return DevicePointer<uint64_t>(host_memory_->device_address() + hashes_offset_);
}

uint64_t* BoundLeg::hashes_in_place_on_gpu() const {
  if (!compiled_->checksums()) return nullptr;
  return root_hashes_on_gpu() + compiled_->leaves();
}

absl::Status BoundLeg::CopyRootHashes(uint64_t from, const GpuStream& stream) const {
  return host_memory_->CopyFromGpu(
      from, std::as_writable_bytes(both_hashes().first(compiled_->leaves())), stream);
}

LeafHashes BoundLeg::hashes() const {
  return {.of_root = both_hashes().first(compiled_->leaves()),
          .in_place = both_hashes().subspan(compiled_->leaves())};
}

std::span<uint64_t> BoundLeg::both_hashes() const {
  return {reinterpret_cast<uint64_t*>(host_memory_->bytes().data() + hashes_offset_),
          static_cast<size_t>(2 * compiled_->leaves())};
}

int64_t BoundLeg::hash_bytes() const {
  return 2 * compiled_->leaves() * static_cast<int64_t>(sizeof(uint64_t));
}

}  // namespace crossmesh

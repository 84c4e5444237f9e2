#pragma once

#include "worker/gpu/compiler/checksum_comparison.h"
#include "worker/gpu/compiler/compiled_part.h"
#include "worker/gpu/device/gpu.h"
#include "worker/gpu/executor/gpu_legs.h"
#include "worker/gpu/executor/reduction_launches.h"
#include "worker/gpu/executor/step_launches.h"
#include "worker/gpu/kernels/kernel_arguments.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

namespace crossmesh {

class GpuScales;
class GpuStream;
class M2nTensorList;
class RegisteredMemory;
struct Collective;
struct M2nTensor;

// What all legs of a binding have on the GPU together.
struct BoundLists {
  std::vector<KernelBox> boxes;
  LaunchSegments segments;
  std::vector<ReductionSegment> reductions;
  std::vector<ScaledMatrix> matrices;
};

// A leg bound to memory: what its steps launch, with the boxes of its classes and the lists of
// segments on the GPU, where kernels search them; room for the scales of source tiles; and the
// hashes that an execution leaves for the host to look at. Confined to the thread of its Gpu.
class BoundLeg {
 public:
  // Where these lists are.
  struct ListsOnGpu {
    const KernelBox* boxes = nullptr;
    const PackSegment* packs = nullptr;
    const CopySegment* copies = nullptr;
    const ReductionSegment* reductions = nullptr;
    const ScaledMatrix* matrices = nullptr;
  };

  // Appends its own to `lists`. InvalidArgument, naming device and tensor, when a tile has no
  // memory that the leg reads or writes, or begins between elements that are to be converted or
  // reduced. ResourceExhausted. Cost: linear in the segments of the classes that it touches, and in
  // its chunks. `gpu` must outlive the leg.
  static absl::StatusOr<BoundLeg> Create(Gpu& gpu, GpuLeg leg, BoundLists& lists);
  BoundLeg(BoundLeg&&) noexcept;
  ~BoundLeg();

  // Of both lists of hashes.
  int64_t hash_bytes() const;
  // Once, when there is memory: hashes are that many bytes of `host_memory` from `offset` on.
  void Place(const ListsOnGpu& lists, RegisteredMemory& host_memory, int64_t offset);

  const CompiledPart& compiled() const { return *compiled_; }
  int32_t step() const { return step_; }  // as of GpuLeg
  std::optional<int32_t> split() const { return split_; }
  // Of a device of the compiled part's table: its rank in that of the whole part.
  DeviceRank InWhole(DeviceRank device) const {
    return ranks_in_whole_ == nullptr ? device : (*ranks_in_whole_)[device];
  }

  const StepLaunches& launches() const { return launches_; }
  const std::vector<ReductionLaunch>& reductions() const { return reductions_; }
  // In manifest order; empty where it is not M2N that moves them.
  std::span<const M2nTensor> m2n_tensors() const;
  // Likewise, where it is no collective that does.
  std::span<const Collective> collectives() const;
  // What a launch is given, but for the places of packed bytes and hashes.
  PackArguments ArgumentsOf(const StepLaunches::Launch<PackArguments>& launch) const;
  CopyArguments ArgumentsOf(const StepLaunches::Launch<CopyArguments>& launch) const;
  ReduceArguments ArgumentsOf(const ReductionLaunch& launch) const;
  // What computes the scales of source tiles, in so many blocks of threads; 0: there are none.
  ScaleArguments scaling() const;
  int64_t scale_blocks() const;

  // Both lists of hashes differ until the unpacks have filled them.
  void SpoilHashes();
  // On the GPU, by leaf; null with checksums off.
  uint64_t* root_hashes_on_gpu() const;
  uint64_t* hashes_in_place_on_gpu() const;
  // Queues the copy of all root hashes from memory of the GPU to the host's list. Checksums are on.
  absl::Status CopyRootHashes(uint64_t from, const GpuStream& stream) const;
  // On the host, when all unpacks have ended.
  LeafHashes hashes() const;

 private:
  BoundLeg(GpuLeg leg, std::unique_ptr<GpuScales> scales, StepLaunches launches);

  std::span<uint64_t> both_hashes() const;

  std::shared_ptr<const CompiledPart> compiled_;
  std::shared_ptr<const std::vector<DeviceRank>> ranks_in_whole_;
  int32_t step_ = 0;
  std::optional<int32_t> split_;
  std::unique_ptr<GpuScales> scales_;
  StepLaunches launches_;
  std::vector<ReductionLaunch> reductions_;
  std::unique_ptr<const M2nTensorList> m2n_;
  std::vector<Collective> collectives_;
  // Of the lists.
  int64_t first_box_ = 0;
  int64_t first_matrix_ = 0;
  ListsOnGpu lists_;
  RegisteredMemory* host_memory_ = nullptr;
  int64_t hashes_offset_ = 0;
};

}  // namespace crossmesh

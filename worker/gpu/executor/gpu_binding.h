#pragma once

#include "worker/executor/task.h"
#include "worker/gpu/compiler/compiled_part.h"
#include "worker/gpu/device/gpu.h"
#include "worker/gpu/executor/execution_agreement.h"
#include "worker/gpu/executor/step_launches.h"
#include "worker/gpu/kernels/kernel_arguments.h"

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

namespace crossmesh {

class GpuEvent;
class GpuMemory;
class GpuScales;
class M2nTensorList;
class RegisteredMemory;
struct LeafHashes;
struct M2nTensor;

// Where each tensor's tile of a device begins in memory of its GPU, by manifest index; 0 where the
// device holds nothing of it. The device only reads its source tiles.
struct GpuTiles {
  std::vector<uint64_t> source;
  std::vector<uint64_t> destination;
};

// A compiled part bound to memory: what its steps launch, with the boxes of its classes and the
// lists of segments on the GPU, where kernels search them; room for the scales of source tiles; and
// what an execution leaves for the host to look at. Made once, executed any number of times, one
// execution at a time; executing uploads and allocates nothing. Confined to the thread of its Gpu.
//
// Goes, as the tiles do, only when no execution of it is on the GPU any more.
class GpuBinding {
 public:
  // All lists are copied to the GPU in `upload`, on which there is nothing else. InvalidArgument,
  // naming device and tensor, when a tile has no memory that the compiled part reads or writes, or
  // begins between elements that are to be converted. ResourceExhausted. Cost: linear in the
  // segments of the classes that the compiled part touches, and in its chunks. `gpu` must outlive
  // the binding.
  static absl::StatusOr<std::shared_ptr<GpuBinding>> Create(
      Gpu& gpu, std::shared_ptr<const CompiledPart> compiled, const GpuTiles& tiles,
      const GpuStream& upload);
  // Waits for the copy, should it still be under way.
  ~GpuBinding();
  GpuBinding(const GpuBinding&) = delete;
  GpuBinding& operator=(const GpuBinding&) = delete;

  const CompiledPart& compiled() const { return *compiled_; }
  // Happens when the lists are on the GPU.
  GpuEvent& uploaded() { return *uploaded_; }

  const StepLaunches& launches() const { return launches_; }
  // In manifest order; empty where it is not M2N that moves them.
  std::span<const M2nTensor> m2n_tensors() const;
  // What a launch is given, but for the places of packed bytes and hashes.
  PackArguments ArgumentsOf(const StepLaunches::Launch<PackArguments>& launch) const;
  CopyArguments ArgumentsOf(const StepLaunches::Launch<CopyArguments>& launch) const;
  // What computes the scales of source tiles, in so many blocks of threads; 0: there are none.
  ScaleArguments scaling() const;
  int64_t scale_blocks() const;

  // Makes ready for an execution: both lists of hashes differ until the unpacks have filled them.
  void Prepare(const TaskKey& key);

  // On the GPU, by leaf; null with checksums off.
  uint64_t* root_hashes_on_gpu() const;
  uint64_t* hashes_in_place_on_gpu() const;
  // Queues the copy of all root hashes from memory of the GPU to the host's list. Checksums are on.
  absl::Status CopyRootHashes(uint64_t from, const GpuStream& stream) const;
  // On the host, when all unpacks have ended.
  LeafHashes hashes() const;

  // What the device tells its peers, and what these told it: as compiled().senders(), or, in a
  // broadcast group, by rank of the communicator.
  std::span<const ExecutionAgreement> own_agreement() const { return agreements().first(1); }
  std::span<ExecutionAgreement> agreements_told() { return agreements().subspan(1); }
  static int64_t AgreementsTold(const CompiledPart& compiled) {
    return compiled.is_of_group() ? std::ssize(compiled.peers()) + 1
                                  : std::ssize(compiled.senders());
  }
  RegisteredMemory& host_memory() { return *host_memory_; }

 private:
  // Lists on the GPU, one after the other.
  struct Lists {
    std::vector<KernelBox> boxes;
    LaunchSegments segments;
    std::vector<ScaledMatrix> matrices;
  };

  GpuBinding(std::shared_ptr<const CompiledPart> compiled, std::unique_ptr<GpuScales> scales,
             StepLaunches launches);

  absl::Status Upload(Gpu& gpu, const Lists& lists, const GpuStream& upload);
  std::span<ExecutionAgreement> agreements() const;
  std::span<uint64_t> both_hashes() const;

  // In host_memory_: agreements, both lists of hashes, and the lists on their way to the GPU.
  int64_t agreement_bytes() const;
  int64_t hash_bytes() const;

  const std::shared_ptr<const CompiledPart> compiled_;
  const std::unique_ptr<GpuScales> scales_;
  const StepLaunches launches_;
  std::unique_ptr<const M2nTensorList> m2n_;
  std::unique_ptr<RegisteredMemory> host_memory_;
  std::unique_ptr<GpuMemory> lists_;
  // Addresses of the lists in it.
  const KernelBox* boxes_ = nullptr;
  const PackSegment* pack_segments_ = nullptr;
  const CopySegment* copy_segments_ = nullptr;
  const ScaledMatrix* matrices_ = nullptr;
  std::unique_ptr<GpuEvent> uploaded_;
};

}  // namespace crossmesh

#pragma once

#include "tests/gpu/gpu_mirror.h"
#include "worker/gpu/communicators/communicator.h"

#include <vector>

namespace crossmesh {

// A communicator of a GPU for tests, which name memory of this process: what moves is its image on
// the GPU, brought up to date before each call. Confined to its thread.
class MirroredCommunicator final : public Communicator {
 public:
  // Both must outlive this. `communicator` is idle.
  MirroredCommunicator(Communicator& communicator, GpuMirror& mirror)
      : communicator_(communicator), mirror_(mirror) {}

  int rank() const override { return communicator_.rank(); }
  int size() const override { return communicator_.size(); }
  absl::Status Exchange(std::span<const RankMessage> sends, std::span<const RankMessage> receives,
                        CUstream stream) override;
  absl::Status PerformAll(std::span<const Collective> collectives, CUstream stream) override;
  absl::Status Split(const RankGroups& groups) override;
  absl::Status PerformAllIn(const RankGroups& groups, std::span<const Collective> collectives,
                            CUstream stream) override;
  absl::Status Reshard(std::span<const M2nTensor> tensors, CUstream stream) override;
  absl::StatusOr<Progress> Poll() override;

 private:
  // Unless a call is in progress, which the next one must not disturb.
  absl::Status Update();
  std::vector<RankMessage> OnGpu(std::span<const RankMessage> messages) const;
  std::vector<Collective> OnGpu(std::span<const Collective> collectives) const;
  absl::Status Begun(const absl::Status& status);

  Communicator& communicator_;
  GpuMirror& mirror_;
  bool is_in_progress_ = false;
};

}  // namespace crossmesh

#include "tests/gpu/mirrored_communicator.h"

#include "common/base/status_macros.h"

namespace crossmesh {

absl::Status MirroredCommunicator::Exchange(std::span<const RankMessage> sends,
                                            std::span<const RankMessage> receives,
                                            CUstream stream) {
  RETURN_IF_ERROR(Update());
  return Begun(communicator_.Exchange(OnGpu(sends), OnGpu(receives), stream));
}

absl::Status MirroredCommunicator::PerformAll(std::span<const Collective> collectives,
                                              CUstream stream) {
  RETURN_IF_ERROR(Update());
  return Begun(communicator_.PerformAll(OnGpu(collectives), stream));
}

absl::Status MirroredCommunicator::Split(const RankGroups& groups) {
  return Begun(communicator_.Split(groups));
}

absl::Status MirroredCommunicator::PerformAllIn(const RankGroups& groups,
                                                std::span<const Collective> collectives,
                                                CUstream stream) {
  RETURN_IF_ERROR(Update());
  return Begun(communicator_.PerformAllIn(groups, OnGpu(collectives), stream));
}

absl::Status MirroredCommunicator::Reshard(std::span<const M2nTensor> tensors, CUstream stream) {
  RETURN_IF_ERROR(Update());
  std::vector<M2nTensor> on_gpu(tensors.begin(), tensors.end());
  for (M2nTensor& tensor : on_gpu) {
    tensor.source = mirror_.OnGpu(tensor.source);
    tensor.destination = mirror_.OnGpu(tensor.destination);
  }
  return Begun(communicator_.Reshard(on_gpu, stream));
}

absl::StatusOr<Communicator::Progress> MirroredCommunicator::Poll() {
  ASSIGN_OR_RETURN(const Progress progress, communicator_.Poll());
  is_in_progress_ = progress == Progress::kInProgress;
  return progress;
}

absl::Status MirroredCommunicator::Update() {
  return is_in_progress_ ? absl::OkStatus() : mirror_.CopyToGpu();
}

std::vector<RankMessage> MirroredCommunicator::OnGpu(std::span<const RankMessage> messages) const {
  std::vector<RankMessage> on_gpu(messages.begin(), messages.end());
  for (RankMessage& message : on_gpu) message.address = mirror_.OnGpu(message.address);
  return on_gpu;
}

std::vector<Collective> MirroredCommunicator::OnGpu(std::span<const Collective> collectives) const {
  std::vector<Collective> on_gpu(collectives.begin(), collectives.end());
  for (Collective& collective : on_gpu) {
    collective.from = mirror_.OnGpu(collective.from);
    collective.to = mirror_.OnGpu(collective.to);
  }
  return on_gpu;
}

absl::Status MirroredCommunicator::Begun(const absl::Status& status) {
  if (status.ok()) is_in_progress_ = true;
  return status;
}

}  // namespace crossmesh

#include "tests/standin/stand_in_gpu.h"

#include "common/base/status_macros.h"

#include <thread>

#include <absl/memory/memory.h>

namespace crossmesh {

absl::StatusOr<std::unique_ptr<StandInGpu>> StandInGpu::Create(const StandIn& stand_in,
                                                               int device) {
  const DriverApi& driver = stand_in.driver();
  auto gpu = absl::WrapUnique(new StandInGpu(stand_in));
  gpu->device_ = device;
  RETURN_IF_ERROR(driver.Check(driver.cuInit(0), "cuInit"));
  RETURN_IF_ERROR(driver.Check(driver.cuDevicePrimaryCtxRetain(&gpu->context_, device),
                               "cuDevicePrimaryCtxRetain"));
  RETURN_IF_ERROR(driver.Check(driver.cuCtxSetCurrent(gpu->context_), "cuCtxSetCurrent"));
  RETURN_IF_ERROR(
      driver.Check(driver.cuStreamCreateWithPriority(&gpu->stream_, CU_STREAM_NON_BLOCKING, 0),
                   "cuStreamCreateWithPriority"));
  return gpu;
}

StandInGpu::~StandInGpu() {
  const DriverApi& driver = stand_in_.driver();
  driver.cuCtxSetCurrent(context_);
  if (stream_ != nullptr) driver.cuStreamDestroy(stream_);
  for (void* memory : memory_) stand_in_.nccl().ncclMemFree(memory);
  driver.cuCtxSetCurrent(nullptr);
  if (context_ != nullptr) driver.cuDevicePrimaryCtxRelease(device_);
}

absl::StatusOr<std::span<std::byte>> StandInGpu::Allocate(size_t bytes) {
  void* memory = nullptr;
  RETURN_IF_ERROR(stand_in_.Check(stand_in_.nccl().ncclMemAlloc(&memory, bytes), "ncclMemAlloc"));
  memory_.push_back(memory);
  return std::span(static_cast<std::byte*>(memory), bytes);
}

absl::Status StandInGpu::Synchronize() const {
  return stand_in_.Check(stand_in_.driver().cuStreamSynchronize(stream_), "cuStreamSynchronize");
}

absl::StatusOr<int64_t> StandInGpu::FreeBytes() const {
  size_t free = 0;
  size_t total = 0;
  RETURN_IF_ERROR(stand_in_.Check(stand_in_.driver().cuMemGetInfo(&free, &total), "cuMemGetInfo"));
  return static_cast<int64_t>(free);
}

absl::StatusOr<ncclComm_t> StandInGpu::InitCommunicator(int ranks, const ncclUniqueId& id,
                                                        int rank) const {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  ncclComm_t communicator = nullptr;
  RETURN_IF_ERROR(stand_in_.Check(
      stand_in_.nccl().ncclCommInitRankConfig(&communicator, ranks, id, rank, &config),
      "ncclCommInitRankConfig"));
  return communicator;
}

absl::Status StandInGpu::Poll(ncclComm_t communicator) const {
  ncclResult_t state = ncclInProgress;
  while (state == ncclInProgress) {
    std::this_thread::yield();
    RETURN_IF_ERROR(stand_in_.Check(stand_in_.nccl().ncclCommGetAsyncError(communicator, &state),
                                    "ncclCommGetAsyncError"));
  }
  return stand_in_.Check(state, "state of the communicator");
}

absl::StatusOr<ncclComm_t> StandInGpu::MakeCommunicator(int ranks, const ncclUniqueId& id,
                                                        int rank) const {
  ASSIGN_OR_RETURN(ncclComm_t communicator, InitCommunicator(ranks, id, rank));
  RETURN_IF_ERROR(Poll(communicator));
  return communicator;
}

absl::Status StandInGpu::FinalizeAndDestroy(ncclComm_t communicator) const {
  RETURN_IF_ERROR(
      stand_in_.Check(stand_in_.nccl().ncclCommFinalize(communicator), "ncclCommFinalize"));
  RETURN_IF_ERROR(Poll(communicator));
  return stand_in_.Check(stand_in_.nccl().ncclCommDestroy(communicator), "ncclCommDestroy");
}

}  // namespace crossmesh

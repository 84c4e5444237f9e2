#pragma once

#include "common/communicators/communicator_key.h"
#include "common/communicators/preflight_report.h"
#include "crossmesh/v1/gpu_process.pb.h"
#include "worker/gpu/devices/gpu_devices.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <absl/functional/any_invocable.h>
#include <absl/status/status.h>
#include <absl/status/statusor.h>

namespace crossmesh {

// One rank of a communicator, which is one of the key's.
struct RankOfKey {
  CommunicatorKey key;
  RankName rank;
};

// Passes the orders of controllers for communicators to the processes of the GPUs, and their
// answers back. Before the first order of a later epoch is passed on, all communicators of earlier
// epochs are stopped; an order of an earlier epoch is refused.
//
// All calls: `done` is called once, on the loop, maybe from inside. Aborted for an epoch that is
// over; NotFound when the rank is no GPU of this worker; Unavailable when another process drives
// it, or none, or it is lost meanwhile. Confined to the loop of the GPUs.
class CommunicatorProxy {
 public:
  // `gpus` must outlive it.
  explicit CommunicatorProxy(GpuDevices& gpus) : gpus_(gpus) {}
  CommunicatorProxy(const CommunicatorProxy&) = delete;
  CommunicatorProxy& operator=(const CommunicatorProxy&) = delete;

  // What the process has now.
  void GetPreflight(const RankName& rank, uint64_t epoch,
                    absl::AnyInvocable<void(absl::StatusOr<PreflightReport>)> done);
  void MintId(const RankName& rank, uint64_t epoch,
              absl::AnyInvocable<void(absl::StatusOr<std::string>)> done);
  // With the bytes that it took of the GPU's memory. What the process answers; FailedPrecondition
  // for a ticket that is not in turn. The key of the order is that of `at`.
  void Create(const RankOfKey& at, v1::GpuRequest::CreateCommunicator order,
              absl::AnyInvocable<void(absl::StatusOr<int64_t>)> done);
  void Destroy(const RankOfKey& at, v1::GpuRequest::DestroyCommunicator order,
               absl::AnyInvocable<void(absl::Status)> done);
  void Stop(const RankOfKey& at, v1::GpuRequest::StopCommunicator order,
            absl::AnyInvocable<void(absl::Status)> done);

 private:
  using Admitted = absl::AnyInvocable<void(absl::StatusOr<GpuDevice*>)>;
  using Made = std::pair<RankName, CommunicatorKey>;

  // Calls `admitted` when nothing of earlier epochs is left.
  void Admit(const RankName& rank, uint64_t epoch, Admitted admitted);
  void StopThoseMade();
  void OnStopped();
  void Forget(const RankName& rank, const CommunicatorKey& key);
  void ForgetOrder(const Made& made);

  GpuDevices& gpus_;
  uint64_t epoch_ = 0;
  std::vector<Made> made_;  // or ordered: one for each order, of this epoch
  size_t stopping_ = 0;     // of earlier ones
  std::vector<absl::AnyInvocable<void()>> waiting_;  // for that
};

}  // namespace crossmesh

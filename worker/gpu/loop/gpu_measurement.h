#pragma once

#include "common/base/clock.h"
#include "crossmesh/v1/communicator_service.pb.h"
#include "worker/gpu/communicators/communicator.h"
#include "worker/gpu/communicators/communicator_life.h"
#include "worker/gpu/device/gpu.h"
#include "worker/gpu/kernels/kernel_arguments.h"

#include <cstdint>
#include <memory>
#include <vector>

#include <absl/functional/any_invocable.h>
#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/time/time.h>

namespace crossmesh {

class CommunicatorOrders;
class GpuEvent;
class GpuStream;
class RegisteredMemory;
class RegisteredStaging;

// Measures what calls of this GPU cost, over a communicator whose ranks all measure at once:
// launches and packs of its own, then groups of messages in a ring, from each rank to the next.
// They are made as the executor makes them, with memory in its staging, which nothing else may use
// meanwhile. Groups are as many at every rank, whatever they take; the first ones, in which ranks
// meet and NCCL connects them, do not count.
//
// One that fails takes its communicator along, and is over when the streams have passed what was on
// them, as GpuExecutor's tasks. Confined to the thread of the Gpu.
class GpuMeasurement {
 public:
  // All must outlive it.
  struct Ports {
    const Clock& clock;
    Gpu& gpu;
    const RegisteredStaging& staging;
    CommunicatorOrders& communicators;
  };

  // Errors of the driver.
  static absl::StatusOr<std::unique_ptr<GpuMeasurement>> Create(const Ports& ports);
  ~GpuMeasurement();

  // `done` is called once, from inside or from Poll. FailedPrecondition while another one runs, or
  // where there is less than 1 MiB of staging; NotFound without the communicator;
  // DeadlineExceeded; what the communicator and the driver say.
  using Done = absl::AnyInvocable<void(absl::StatusOr<v1::MeasureGpuResponse>)>;
  void Begin(const v1::MeasureGpuRequest& request, Done done);
  void OnCommunicatorChange(const Communicator& communicator, CommunicatorState state,
                            const absl::Status& cause);
  // Goes on, and may keep the thread for some 20 ms.
  void Poll();
  bool is_empty() const { return running_ == nullptr; }

 private:
  enum class Work : uint8_t { kLaunch, kPack, kGroup, kMessages, kExchange, kEnd };
  struct Running;

  explicit GpuMeasurement(const Ports& ports);

  absl::StatusOr<std::unique_ptr<Running>> Prepare(const v1::MeasureGpuRequest& request);
  // Boxes and segments of the packs, to the GPU.
  absl::Status UploadLists();
  absl::Status Advance();
  absl::Status BeginSample();
  absl::Status QueuePacks();
  absl::StatusOr<bool> AdvanceSample();
  absl::Status Exchange();
  void EndSample();
  void EndWork(double seconds);
  void Fail(const absl::Status& why);
  void OnCommunicatorOver(CommunicatorState state);
  void End(absl::StatusOr<v1::MeasureGpuResponse> result);

  const Ports ports_;
  const GpuKernel<PackArguments> pack_;
  std::unique_ptr<RegisteredMemory> lists_;
  std::unique_ptr<GpuStream> pack_stream_;
  std::unique_ptr<GpuStream> wire_stream_;
  std::unique_ptr<GpuEvent> packed_;
  std::unique_ptr<GpuEvent> wired_;
  std::unique_ptr<Running> running_;  // null: none
};

}  // namespace crossmesh

#pragma once

#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/communicators/communicator_key.h"
#include "common/event_loop/event_loop.h"
#include "common/mesh/device.h"
#include "common/metrics/worker_metrics.h"
#include "crossmesh/v1/worker_service.pb.h"
#include "worker/gpu/devices/gpu_device.h"
#include "worker/gpu/devices/gpu_name.h"
#include "worker/gpu/process/gpu_process_options.h"
#include "worker/memory/storage_table.h"

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <absl/functional/any_invocable.h>
#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>
#include <absl/time/time.h>

namespace crossmesh {

// The GPUs of a worker. Confined to the loop, apart from construction, destruction, and what says
// otherwise; destroyed when the loop has stopped.
class GpuDevices {
 public:
  struct Options {
    std::vector<GpuName> gpus;
    GpuProcessOptions process;  // of each, but for its UUID
  };
  // Which process drives which GPU.
  struct Driver {
    DeviceId device;
    RankName rank;         // incarnation 0: none does
    bool has_m2n = false;  // it can use NCCL M2N
    std::optional<v1::GpuHardware> hardware = std::nullopt;
  };

  // InvalidArgument when a device or a GPU is there twice. All references must outlive it.
  static absl::StatusOr<std::unique_ptr<GpuDevices>> Create(EventLoop& loop, const Clock& clock,
                                                            const Options& options,
                                                            WorkerMetrics& metrics);

  // Starts all processes. Calls `opened` once each GPU is up, given up, or to be tried again, or
  // has had time for it, with OK; or at the first one with why the host has no GPUs,
  // FailedPrecondition: then there are none.
  void Open(absl::AnyInvocable<void(absl::Status)> opened);
  // As GpuProcess::StopAll. Repeatable.
  void Stop();

  // From now on called on the loop when another process drives a GPU, or none.
  void SetOnChange(std::function<void()> on_change) { on_change_ = std::move(on_change); }

  // Null when it is none of the GPUs.
  GpuDevice* Find(const DeviceId& device) const;
  // NotFound when it is none of the GPUs; Unavailable when another process drives it, or none.
  absl::StatusOr<GpuDevice*> FindRank(const RankName& rank) const;
  // For a controller of the epoch. `admitted` is called once, maybe from inside, when no GPU has
  // anything of controllers of earlier epochs left: with what FindRank says then; Aborted for an
  // epoch that is over.
  using Admitted = absl::AnyInvocable<void(absl::StatusOr<GpuDevice*>)>;
  void Admit(const RankName& rank, uint64_t epoch, Admitted admitted);

  // Thread-safe: whether the device is one of the GPUs that were named, there or not.
  bool Has(const DeviceId& device) const { return gpus_.contains(device); }
  // Thread-safe; as StorageArenas::Make. Of a device that it has.
  absl::StatusOr<std::shared_ptr<Arena>> MakeArena(const StorageKey& key, ByteCount bytes) const;
  // Thread-safe; as StorageArenas::Lend and Bind. Of devices that it has.
  absl::StatusOr<std::shared_ptr<Arena>> LendArena(const StorageKey& key, ByteCount bytes,
                                                   LentAllocation allocation) const;
  absl::StatusOr<std::shared_ptr<Arena>> BindArena(const StorageKey& key, ByteCount bytes,
                                                   std::vector<BoundPiece> pieces) const;
  // Thread-safe; as StorageArenas::EndLoan. Of a device that it has.
  void EndLoan(const StorageKey& key, std::shared_ptr<Arena> lent, const absl::Status& why) const;
  // Thread-safe. By device; empty when the host has no GPUs.
  std::vector<Driver> drivers() const;

 private:
  GpuDevices(EventLoop& loop, const Clock& clock, const Options& options, WorkerMetrics& metrics);

  void OnGpuChange(const GpuDevice& gpu);
  void GoOnOpening(const GpuDevice& gpu);
  void StartOthers();
  void EndOpening(const absl::Status& status);
  void GiveUpAll(const absl::Status& why);
  void NoteDrivers();
  void RecordStates() const;
  void BeginEpoch(uint64_t epoch);
  void OnEpochBegun();

  EventLoop& loop_;
  const absl::Duration start_limit_;
  WorkerMetrics& metrics_;
  std::map<DeviceId, std::unique_ptr<GpuDevice>> gpus_;  // never changes
  absl::AnyInvocable<void(absl::Status)> opened_;        // null: no caller waits
  TimerId open_limit_;
  bool are_others_started_ = false;
  std::function<void()> on_change_;
  uint64_t epoch_ = 0;                               // of controllers, the latest
  int epochs_open_ = 0;                              // processes that have still to begin it
  std::vector<absl::AnyInvocable<void()>> waiting_;  // for these

  mutable Mutex mutex_;
  std::vector<Driver> drivers_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace crossmesh

#pragma once

#include "common/communicators/communicator_key.h"
#include "common/mesh/device.h"
#include "controller/membership/worker_registry.h"
#include "crossmesh/v1/communicator_service.pb.h"
#include "planner/network/calibrated_topology.h"

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <absl/functional/any_invocable.h>
#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/time/time.h>

namespace crossmesh {

class CommunicatorGateway;
class CommunicatorLeases;
class TaskQueue;

// The GPUs of one host that measure together.
struct CalibratedHost {
  std::string name;
  CommunicatorKey key;
  std::vector<DeviceId> devices;     // by rank
  std::vector<std::string> workers;  // their addresses, likewise
};
// Of the workers that are there, by host: GPUs that a process drives, each once, where it has
// shares. FailedPrecondition: there is none.
absl::StatusOr<std::vector<CalibratedHost>> CalibratedHostsOf(std::span<const WorkerRecord> workers,
                                                              uint64_t epoch);

// One measurement of what GPUs cost: hosts side by side, the GPUs of a host together, over a
// communicator, when it is their turn. Confined to the queue, but for Create, Start and Cancel.
class GpuCalibration : public std::enable_shared_from_this<GpuCalibration> {
 public:
  // For NCCL to connect, and for a few hundred messages.
  static constexpr absl::Duration kTimeout = absl::Seconds(60);

  struct Result {
    std::vector<GpuFigures> figures;     // of hosts all of whose GPUs could be measured
    std::vector<absl::Status> failures;  // of the others, each naming a GPU or the host
  };
  struct Options {
    CommunicatorLeases& leases;
    CommunicatorGateway& gateway;
    TaskQueue& queue;
    std::vector<CalibratedHost> hosts;
    std::string user;  // of leases, before the hosts' names
    // Once, at the end: the first failure where all have failed, or Cancelled.
    absl::AnyInvocable<void(absl::StatusOr<Result>)> on_end;
  };

  // All references must outlive it.
  static std::shared_ptr<GpuCalibration> Create(Options options);
  // Once. Unavailable when the queue has stopped; then it does not end.
  absl::Status Start();
  // It ends with Cancelled, at once; what is being measured goes on at the GPUs, without the
  // communicator. Nothing happens when it has ended.
  void Cancel();

 private:
  // Of a host whose GPUs have not all answered.
  struct Open {
    CalibratedHost host;
    std::vector<GpuFigures> figures;  // by rank
    size_t unanswered = 0;
    absl::Status failure;  // the first
  };

  explicit GpuCalibration(Options options) : options_(std::move(options)) {}

  std::string UserOf(const std::string& host) const { return options_.user + "/" + host; }
  void Want(const CalibratedHost& host);
  void OnLeased(const std::string& host, const absl::Status& status);
  void OnMeasured(const std::string& host, size_t rank,
                  const absl::StatusOr<v1::MeasureGpuResponse>& measured);
  void Close(const std::string& host);
  void End(absl::StatusOr<Result> result);

  Options options_;
  std::map<std::string, Open> open_;  // by host
  Result result_;
};

}  // namespace crossmesh

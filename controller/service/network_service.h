#pragma once

#include "common/base/mutex.h"
#include "controller/requests/bulk_service.h"
#include "crossmesh/v1/network_service.grpc.pb.h"

#include <cstdint>
#include <memory>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

namespace crossmesh {

class Clock;
class CommunicatorGateway;
class CommunicatorLeases;
class ProbeGateway;
class RunningOperation;
class TaskQueue;
class Topology;
class WorkerRegistry;
struct Catalog;
struct NetworkDescription;
template <typename Running>
class RunningTable;

// The current description of the network, and how it is measured. Thread-safe.
class NetworkService final : public BulkService<v1::NetworkService> {
 public:
  struct Options {
    RequestBudget& budget;
    Catalog& catalog;
    const WorkerRegistry& workers;
    const RunningTable<RunningOperation>& operations;
    ProbeGateway& probes;
    CommunicatorLeases& communicators;
    CommunicatorGateway& communicator_gateway;
    TaskQueue& queue;  // that the leases are confined to
    const Clock& clock;
    uint64_t epoch = 0;
  };
  explicit NetworkService(const Options& options);

  grpc::ServerUnaryReactor* GetNetwork(grpc::CallbackServerContext* context,
                                       const v1::GetNetworkRequest* request,
                                       v1::GetNetworkResponse* response) override;
  grpc::ServerWriteReactor<v1::MeasureNetworkResponse>* MeasureNetwork(
      grpc::CallbackServerContext* context, const v1::MeasureNetworkRequest* request) override;
  grpc::ServerWriteReactor<v1::CalibrateGpusResponse>* CalibrateGpus(
      grpc::CallbackServerContext* context, const v1::CalibrateGpusRequest* request) override;

 private:
  class MeasurementCall;
  class CalibrationCall;

  absl::Status Set(const v1::SetNetworkRequest& request, v1::SetNetworkResponse& response);

  // One measurement at a time, since two would measure each other. FailedPrecondition: another one
  // runs.
  absl::Status Enter();
  void Leave();
  // What was measured, from the description of `revision`, becomes the next one.
  absl::StatusOr<std::shared_ptr<const NetworkDescription>> SetMeasured(Topology topology,
                                                                        int64_t revision);

  const Options options_;

  Mutex mutex_;
  bool measuring_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace crossmesh

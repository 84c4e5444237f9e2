#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/mutex.h"
#include "common/base/status_macros.h"
#include "common/rpc/server_streams.h"
#include "controller/catalog/catalog.h"
#include "controller/catalog/network_codec.h"
#include "controller/dispatch/gpu_calibration.h"
#include "controller/membership/worker_registry.h"
#include "controller/service/network_service.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/time/time.h>

namespace crossmesh {

// One call of CalibrateGpus: has the GPUs measured, stores what was found, and says so. Shared by
// gRPC and the calibration. Thread-safe.
class NetworkService::CalibrationCall final
    : public ServerWriteStream<v1::CalibrateGpusResponse>,
      public std::enable_shared_from_this<NetworkService::CalibrationCall> {
 public:
  explicit CalibrationCall(NetworkService& service) : service_(service) {}

  // Once, after which gRPC may have the stream; ends it where the request cannot be served.
  void Start(const v1::CalibrateGpusRequest& request);

 private:
  absl::Status Begin(const v1::CalibrateGpusRequest& request);
  void OnMeasured(const absl::StatusOr<GpuCalibration::Result>& measured);
  absl::StatusOr<v1::CalibrateGpusResponse> ResponseOf(const GpuCalibration::Result& measured);
  absl::StatusOr<std::shared_ptr<const NetworkDescription>> Store(Topology topology);
  void OnEnd() override;

  NetworkService& service_;
  // Set by Begin, before anything runs.
  std::shared_ptr<const NetworkDescription> before_;
  bool keep_description_ = false;

  Mutex mutex_;
  std::shared_ptr<GpuCalibration> calibration_ ABSL_GUARDED_BY(mutex_);  // null: ended
  bool client_is_gone_ ABSL_GUARDED_BY(mutex_) = false;
};

grpc::ServerWriteReactor<v1::CalibrateGpusResponse>* NetworkService::CalibrateGpus(
    grpc::CallbackServerContext* /*context*/, const v1::CalibrateGpusRequest* request) {
  auto call = std::make_shared<CalibrationCall>(*this);
  call->Start(*request);
  return CalibrationCall::Serve(std::move(call));
}

void NetworkService::CalibrationCall::Start(const v1::CalibrateGpusRequest& request) {
  if (absl::Status entered = service_.Enter(); !entered.ok()) return End(std::move(entered));
  if (absl::Status status = Begin(request); !status.ok()) {
    service_.Leave();
    End(std::move(status));
  }
}

absl::Status NetworkService::CalibrationCall::Begin(const v1::CalibrateGpusRequest& request) {
  const Options& options = service_.options_;
  ASSIGN_OR_RETURN(std::vector<CalibratedHost> hosts,
                   CalibratedHostsOf(options.workers.List(), options.epoch));
  ASSIGN_OR_RETURN(before_, options.catalog.network.Get());
  keep_description_ = request.keep_description();
  auto calibration = GpuCalibration::Create(
      {.leases = options.communicators,
       .gateway = options.communicator_gateway,
       .queue = options.queue,
       .hosts = std::move(hosts),
       .user = "calibration",
       .on_end = [self = shared_from_this()](auto measured) { self->OnMeasured(measured); }});
  {
    const MutexLock lock(mutex_);
    calibration_ = calibration;
  }
  const absl::Status started = calibration->Start();
  if (started.ok()) return absl::OkStatus();
  const MutexLock lock(mutex_);
  calibration_ = nullptr;  // the two held each other
  return started;
}

void NetworkService::CalibrationCall::OnMeasured(
    const absl::StatusOr<GpuCalibration::Result>& measured) {
  bool client_is_gone = false;
  {
    const MutexLock lock(mutex_);
    calibration_ = nullptr;
    client_is_gone = client_is_gone_;
  }
  absl::Status status = measured.status();
  if (status.ok() && !client_is_gone) {
    absl::StatusOr<v1::CalibrateGpusResponse> response = ResponseOf(*measured);
    status = response.status();
    if (status.ok()) Send(*std::move(response));
  }
  // In this order: a client that sees the end may start the next measurement at once.
  service_.Leave();
  End(std::move(status));
}

absl::StatusOr<v1::CalibrateGpusResponse> NetworkService::CalibrationCall::ResponseOf(
    const GpuCalibration::Result& measured) {
  const absl::Time now = service_.options_.clock.Now();
  ASSIGN_OR_RETURN(
      CalibratedNetwork calibrated,
      CalibratedTopology(measured.figures, before_->topology,
                         absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", now, absl::UTCTimeZone())));
  std::shared_ptr<const NetworkDescription> after;
  if (keep_description_) {
    NetworkDescription described = *before_;
    described.topology = std::move(calibrated.topology);
    after = std::make_shared<const NetworkDescription>(std::move(described));
  } else {
    ASSIGN_OR_RETURN(after, Store(std::move(calibrated.topology)));
  }
  v1::CalibrateGpusResponse response;
  *response.mutable_before() = ToProto(*before_);
  *response.mutable_network() = ToProto(*after);
  for (const absl::Status& failure : measured.failures) {
    response.add_warnings(std::string(failure.message()));
  }
  for (std::string& warning : calibrated.warnings) response.add_warnings(std::move(warning));
  return response;
}

absl::StatusOr<std::shared_ptr<const NetworkDescription>> NetworkService::CalibrationCall::Store(
    Topology topology) {
  ASSIGN_OR_RETURN(const std::shared_ptr<const NetworkDescription> network,
                   service_.SetMeasured(std::move(topology), before_->revision));
  LogInfo("network_described", {{"revision", network->revision}, {"source", "calibrated"}});
  return network;
}

void NetworkService::CalibrationCall::OnEnd() {
  std::shared_ptr<GpuCalibration> calibration;
  {
    const MutexLock lock(mutex_);
    client_is_gone_ = true;
    calibration = calibration_;
  }
  if (calibration != nullptr) calibration->Cancel();
}

}  // namespace crossmesh

#pragma once

#include "common/rpc/server_streams.h"
#include "controller/catalog/network_record.h"
#include "controller/dispatch/network_measurement.h"
#include "controller/service/network_service.h"

#include <memory>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

namespace crossmesh {

// One call of MeasureNetwork: tells the client how far it is, stores what was found, and says so.
// Shared by gRPC and the measurement. Thread-safe.
class NetworkService::MeasurementCall final
    : public ServerWriteStream<v1::MeasureNetworkResponse>,
      public std::enable_shared_from_this<NetworkService::MeasurementCall> {
 public:
  explicit MeasurementCall(NetworkService& service) : service_(service) {}

  // Once, after which gRPC may have the stream; ends it where the request cannot be served.
  void Start(const v1::MeasureNetworkRequest& request);

 private:
  absl::Status Begin(const v1::MeasureNetworkRequest& request);
  void OnProgress(const NetworkMeasurement::Progress& progress);
  void OnMeasured(absl::StatusOr<NetworkMeasurement::Result> measured);
  absl::StatusOr<v1::MeasureNetworkResponse::Result> ResultOf(
      const NetworkMeasurement::Result& measured);
  // What is measured becomes the description.
  absl::StatusOr<std::shared_ptr<const NetworkDescription>> Store(
      const NetworkMeasurement::Result& measured);
  void AddWarnings(const NetworkMeasurement::Result& measured,
                   v1::MeasureNetworkResponse::Result& result) const;
  void OnEnd() override;

  NetworkService& service_;

  // Set by Begin, before anything runs.
  std::vector<ProbePort> ports_;
  std::shared_ptr<const NetworkDescription> before_;
  bool keep_description_ = false;
  bool operations_ran_ = false;

  Mutex mutex_;
  std::shared_ptr<NetworkMeasurement> measurement_ ABSL_GUARDED_BY(mutex_);  // null: ended
  bool client_is_gone_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace crossmesh

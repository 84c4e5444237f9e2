#include "controller/service/network_service.h"

#include "common/base/clock.h"
#include "common/base/error_place.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/wire/tensor_codec.h"
#include "controller/catalog/catalog.h"
#include "controller/catalog/network_codec.h"
#include "controller/service/unary.h"
#include "planner/parallelism/measured_axes.h"

#include <memory>
#include <utility>

#include <absl/status/status.h>

namespace crossmesh {

// A description of thousands of hosts is a bulk message.
NetworkService::NetworkService(const Options& options)
    : BulkService(options.budget), options_(options) {
  ServeUnary<v1::SetNetworkRequest, v1::SetNetworkResponse>(
      "SetNetwork", [this](auto* context, const auto& request, auto* response) {
        return Answer(context, Set(*request, *response));
      });
}

grpc::ServerUnaryReactor* NetworkService::GetNetwork(grpc::CallbackServerContext* context,
                                                     const v1::GetNetworkRequest* /*request*/,
                                                     v1::GetNetworkResponse* response) {
  const absl::StatusOr<std::shared_ptr<const NetworkDescription>> network =
      options_.catalog.network.Get();
  if (network.ok()) *response->mutable_network() = ToProto(**network);
  return Answer(context, network.status());
}

absl::Status NetworkService::Set(const v1::SetNetworkRequest& request,
                                 v1::SetNetworkResponse& response) {
  ASSIGN_OR_RETURN(Topology topology, At("topology", FromProto(request.topology())));
  NetworkRecord::Change change = {.topology = std::move(topology),
                                  .source = NetworkSource::kClient,
                                  .time = options_.clock.Now()};
  if (request.has_revision()) change.revision = request.revision();
  if (request.has_axes()) {
    ASSIGN_OR_RETURN(MeasuredAxes axes, At("axes", FromProto(request.axes())));
    change.axes = std::make_shared<const MeasuredAxes>(std::move(axes));
  }
  ASSIGN_OR_RETURN(const std::shared_ptr<const NetworkDescription> network,
                   options_.catalog.network.Set(std::move(change)));
  LogInfo("network_described", {{"revision", network->revision}, {"source", "client"}});
  *response.mutable_network() = ToProto(*network);
  return absl::OkStatus();
}

absl::Status NetworkService::Enter() {
  const MutexLock lock(mutex_);
  if (!std::exchange(measuring_, true)) return absl::OkStatus();
  return absl::FailedPreconditionError(
      "measurement of the network: expected none that runs, found another one");
}

void NetworkService::Leave() {
  const MutexLock lock(mutex_);
  measuring_ = false;
}

absl::StatusOr<std::shared_ptr<const NetworkDescription>> NetworkService::SetMeasured(
    Topology topology, int64_t revision) {
  return options_.catalog.network.Set({.topology = std::move(topology),
                                       .source = NetworkSource::kMeasured,
                                       .time = options_.clock.Now(),
                                       .revision = revision});
}

}  // namespace crossmesh

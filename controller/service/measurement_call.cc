#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/mutex.h"
#include "common/base/status_macros.h"
#include "common/rpc/server_streams.h"
#include "common/wire/time_codec.h"
#include "controller/catalog/catalog.h"
#include "controller/catalog/network_codec.h"
#include "controller/dispatch/network_measurement.h"
#include "controller/dispatch/running_operation.h"
#include "controller/dispatch/running_table.h"
#include "controller/service/network_service.h"
#include "controller/service/random_token.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>

namespace crossmesh {
namespace {

constexpr DurationRange kLinkTimes = {absl::Milliseconds(10), absl::Seconds(10)};
constexpr absl::Duration kLinkTimeDefault = absl::Milliseconds(500);
constexpr int64_t kLinkBytesMin = int64_t{1} << 16;
constexpr int64_t kLinkBytesMax = int64_t{1} << 36;
constexpr int64_t kLinkBytesDefault = int64_t{1} << 30;

absl::StatusOr<int64_t> LinkBytesOf(const v1::MeasureNetworkRequest& request) {
  const int64_t bytes = request.link_bytes() == 0 ? kLinkBytesDefault : request.link_bytes();
  if (bytes >= kLinkBytesMin && bytes <= kLinkBytesMax) return bytes;
  return absl::InvalidArgumentError(absl::StrCat("link_bytes: expected ", kLinkBytesMin, " to ",
                                                 kLinkBytesMax, ", found ", bytes));
}

absl::StatusOr<absl::Duration> LinkTimeOf(const v1::MeasureNetworkRequest& request) {
  if (!request.has_link_time()) return kLinkTimeDefault;
  return DurationIn(request.link_time(), kLinkTimes, "link_time");
}

v1::MeasureNetworkResponse::Link LinkToProto(const LinkFigures& figures,
                                             const std::vector<ProbePort>& ports) {
  v1::MeasureNetworkResponse::Link link;
  link.set_from(ToString(ports[figures.link.from]));
  link.set_to(ToString(ports[figures.link.to]));
  link.set_received_bytes(figures.received_bytes);
  link.set_bytes_per_second(figures.bytes_per_second);
  link.set_latency_ns(figures.round_trip_ns / 2);
  return link;
}

}  // namespace

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

grpc::ServerWriteReactor<v1::MeasureNetworkResponse>* NetworkService::MeasureNetwork(
    grpc::CallbackServerContext* /*context*/, const v1::MeasureNetworkRequest* request) {
  auto call = std::make_shared<MeasurementCall>(*this);
  call->Start(*request);
  return MeasurementCall::Serve(std::move(call));
}

void NetworkService::MeasurementCall::Start(const v1::MeasureNetworkRequest& request) {
  if (absl::Status entered = service_.Enter(); !entered.ok()) return End(std::move(entered));
  if (absl::Status status = Begin(request); !status.ok()) {
    service_.Leave();
    End(std::move(status));
  }
}

absl::Status NetworkService::MeasurementCall::Begin(const v1::MeasureNetworkRequest& request) {
  const Options& options = service_.options_;
  ASSIGN_OR_RETURN(const absl::Duration link_time, LinkTimeOf(request));
  ASSIGN_OR_RETURN(const int64_t link_bytes, LinkBytesOf(request));
  ASSIGN_OR_RETURN(ProbePlaces places, ProbePlacesOf(options.workers.List()));
  ASSIGN_OR_RETURN(before_, options.catalog.network.Get());
  ports_ = places.ports;
  keep_description_ = request.keep_description();
  operations_ran_ = options.operations.running() > 0;
  const std::shared_ptr<MeasurementCall> self = shared_from_this();
  auto measurement = NetworkMeasurement::Create(
      {.gateway = options.probes,
       .places = std::move(places),
       .link_time = link_time,
       .link_bytes = link_bytes,
       .new_token = NewToken,
       .on_progress = [self](const auto& progress) { self->OnProgress(progress); },
       .on_end = [self](auto measured) { self->OnMeasured(std::move(measured)); }});
  {
    // Before it starts: it may end from inside Start.
    const MutexLock lock(mutex_);
    measurement_ = measurement;
  }
  measurement->Start();
  return absl::OkStatus();
}

void NetworkService::MeasurementCall::OnProgress(const NetworkMeasurement::Progress& progress) {
  v1::MeasureNetworkResponse response;
  v1::MeasureNetworkResponse::Progress& out = *response.mutable_progress();
  out.set_links(progress.links);
  out.set_measured_links(progress.measured_links);
  out.set_received_bytes(progress.received_bytes);
  Send(std::move(response));
}

void NetworkService::MeasurementCall::OnMeasured(
    absl::StatusOr<NetworkMeasurement::Result> measured) {
  bool client_is_gone = false;
  {
    const MutexLock lock(mutex_);
    measurement_ = nullptr;  // the two held each other
    client_is_gone = client_is_gone_;
  }
  absl::Status status = measured.status();
  if (status.ok() && !client_is_gone) {
    absl::StatusOr<v1::MeasureNetworkResponse::Result> result = ResultOf(*measured);
    status = result.status();
    if (status.ok()) {
      v1::MeasureNetworkResponse response;
      *response.mutable_result() = *std::move(result);
      Send(std::move(response));
    }
  }
  // In this order: a client that sees the end may start the next measurement at once.
  service_.Leave();
  End(std::move(status));
}

absl::StatusOr<v1::MeasureNetworkResponse::Result> NetworkService::MeasurementCall::ResultOf(
    const NetworkMeasurement::Result& measured) {
  std::shared_ptr<const NetworkDescription> network = before_;
  if (!keep_description_) {
    ASSIGN_OR_RETURN(network, Store(measured));
  }
  v1::MeasureNetworkResponse::Result result;
  *result.mutable_network() = ToProto(*network);
  for (const LinkFigures& link : measured.links) *result.add_links() = LinkToProto(link, ports_);
  AddWarnings(measured, result);
  return result;
}

absl::StatusOr<std::shared_ptr<const NetworkDescription>> NetworkService::MeasurementCall::Store(
    const NetworkMeasurement::Result& measured) {
  absl::StatusOr<Topology> topology = MeasuredTopology(ports_, measured.links, before_->topology);
  if (!topology.ok() && !measured.failures.empty()) {
    return absl::UnavailableError(
        absl::StrCat(topology.status().message(), ": ", measured.failures.front().message()));
  }
  RETURN_IF_ERROR(topology.status());
  ASSIGN_OR_RETURN(const std::shared_ptr<const NetworkDescription> network,
                   service_.SetMeasured(*std::move(topology), before_->revision));
  LogInfo(
      "network_described",
      {{"revision", network->revision}, {"source", "measured"}, {"links", measured.links.size()}});
  return network;
}

void NetworkService::MeasurementCall::AddWarnings(
    const NetworkMeasurement::Result& measured, v1::MeasureNetworkResponse::Result& result) const {
  if (operations_ran_ || service_.options_.operations.running() > 0) {
    result.add_warnings("operations ran meanwhile: rates may be too low, latencies too high");
  }
  for (const absl::Status& failure : measured.failures) {
    result.add_warnings(std::string(failure.message()));
  }
  if (keep_description_) return;
  const std::vector<std::string> kept = HostsWithoutPort(ports_, before_->topology);
  if (!kept.empty()) {
    result.add_warnings(absl::StrCat("no worker is on ", absl::StrJoin(kept, ", "),
                                     ": described as in revision ", before_->revision));
  }
}

void NetworkService::MeasurementCall::OnEnd() {
  std::shared_ptr<NetworkMeasurement> measurement;
  {
    const MutexLock lock(mutex_);
    client_is_gone_ = true;
    measurement = measurement_;
  }
  if (measurement != nullptr) measurement->Cancel();
}

}  // namespace crossmesh

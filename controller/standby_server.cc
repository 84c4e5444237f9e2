#include "controller/standby_server.h"

#include "common/base/status_macros.h"
#include "common/daemon/daemon_health.h"
#include "common/metrics/label_set.h"
#include "common/metrics/prometheus/exporter.h"
#include "common/metrics/rpc_metrics.h"
#include "common/rpc/not_leader.h"
#include "common/rpc/status_codec.h"
#include "controller/standby_reports.h"

#include <utility>

#include <grpcpp/generic/async_generic_service.h>

namespace crossmesh {

class StandbyServer::OtherCalls final : public grpc::CallbackGenericService {
 public:
  explicit OtherCalls(const std::function<std::optional<std::string>()>& leader)
      : leader_(leader) {}

  grpc::ServerGenericBidiReactor* CreateReactor(
      grpc::GenericCallbackServerContext* /*context*/) override {
    class Refusal final : public grpc::ServerGenericBidiReactor {
     public:
      explicit Refusal(const absl::Status& why) { Finish(ToGrpcStatus(why)); }
      void OnDone() override { delete this; }  // gRPC's to say when
    };
    return new Refusal(NotLeaderError(leader_()));
  }

 private:
  const std::function<std::optional<std::string>()> leader_;
};

absl::StatusOr<std::unique_ptr<StandbyServer>> StandbyServer::Start(const Options& options) {
  std::unique_ptr<MetricsExporter> exporter;
  if (!options.metrics_listen.empty()) {
    ASSIGN_OR_RETURN(exporter, MetricsExporter::Start({.address = options.metrics_listen,
                                                       .role = "controller",
                                                       .insecure = options.insecure}));
  }
  std::unique_ptr<StandbyServer> standby(new StandbyServer(options, std::move(exporter)));
  ASSIGN_OR_RETURN(standby->server_, RpcServer::Start({.addresses = options.listen,
                                                       .insecure = options.insecure,
                                                       .other_calls = standby->other_calls_.get(),
                                                       .metrics = standby->metrics_.get()}));
  standby->server_->SetServing(kLeaderService, false);
  const std::string& address =
      options.advertise.empty() ? standby->addresses().front() : options.advertise;
  standby->reports_ = std::make_unique<StandbyReports>(StandbyReports::Options{
      .address = address, .insecure = options.insecure, .leader = options.leader});
  return standby;
}

StandbyServer::StandbyServer(const Options& options, std::unique_ptr<MetricsExporter> exporter)
    : metrics_(std::make_unique<RpcMetrics>(kControllerMethods)),
      exporter_(std::move(exporter)),
      other_calls_(std::make_unique<OtherCalls>(options.leader)) {
  if (exporter_ == nullptr) return;
  exporter_->Serve(metrics_->metrics());
  if (options.health == nullptr) return;
  exporter_->Serve(options.health->metrics.metrics());
  exporter_->ServeProbes(options.health->probes.All());
}

StandbyServer::~StandbyServer() {
  reports_.reset();
  if (server_ != nullptr) server_->Shutdown(absl::ZeroDuration());
}

}  // namespace crossmesh

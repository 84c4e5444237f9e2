#include "controller/standby_reports.h"

#include "common/base/version.h"
#include "common/rpc/channel.h"
#include "common/rpc/deadline.h"
#include "crossmesh/v1/controller_service.grpc.pb.h"

#include <memory>
#include <utility>

#include <absl/status/statusor.h>
#include <grpcpp/grpcpp.h>

namespace crossmesh {
namespace {

constexpr absl::Duration kCallMax = absl::Seconds(2);

}  // namespace

StandbyReports::StandbyReports(Options options)
    : options_(std::move(options)), thread_("standby", [this] { Run(); }) {}

StandbyReports::~StandbyReports() {
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
    if (call_ != nullptr) call_->TryCancel();
    stopping_changed_.SignalAll();
  }
  thread_.Join();
}

void StandbyReports::Run() {
  while (true) {
    const std::optional<std::string> leader = options_.leader();
    if (leader.has_value() && *leader != options_.address) TellOnce(*leader);
    const MutexLock lock(mutex_);
    if (!stopping_) stopping_changed_.WaitFor(mutex_, options_.interval);
    if (stopping_) return;
  }
}

void StandbyReports::TellOnce(const std::string& leader) {
  const absl::StatusOr<std::shared_ptr<grpc::Channel>> channel =
      BuildRpcChannel({.address = leader, .insecure = options_.insecure});
  if (!channel.ok()) return;
  v1::ReportStandbyRequest request;
  request.mutable_standby()->set_address(options_.address);
  request.mutable_standby()->set_version(std::string(Version()));
  v1::ReportStandbyResponse response;
  grpc::ClientContext context;
  SetDeadline(context, kCallMax);
  if (!SetCall(&context)) return;
  const grpc::Status told =
      v1::ControllerService::NewStub(*channel)->ReportStandby(&context, request, &response);
  static_cast<void>(told);  // the next one will do
  SetCall(nullptr);
}

bool StandbyReports::SetCall(grpc::ClientContext* call) {
  const MutexLock lock(mutex_);
  call_ = call;
  return !stopping_;
}

}  // namespace crossmesh

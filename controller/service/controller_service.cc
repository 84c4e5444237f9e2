#include "controller/service/controller_service.h"

#include "common/base/error_place.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/base/version.h"
#include "common/rpc/address.h"
#include "common/wire/time_codec.h"
#include "controller/catalog/catalog.h"
#include "controller/service/unary.h"
#include "controller/store/metadata_store.h"
#include "controller/store/store_upkeep.h"

#include <utility>

#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

constexpr int32_t kLogLinesDefault = 100;
constexpr size_t kStandbysMax = 64;
// Some reports may be lost.
constexpr absl::Duration kStandbySilenceMax = absl::Seconds(10);

void Describe(const StoreCondition& condition, v1::ControllerStore& store) {
  store.set_database_bytes(condition.database_bytes);
  store.set_log_bytes(condition.log_bytes);
  store.set_free_bytes(condition.free_bytes);
  store.set_free_bytes_min(condition.free_bytes_min);
  store.set_is_full(condition.is_full);
  store.set_is_read_only(condition.is_read_only);
  store.set_corruptions(condition.corruptions);
  store.set_disk_failures(condition.disk_failures);
  store.set_backup_failures(condition.backup_failures);
  if (condition.verified_at) *store.mutable_verify_time() = ToProto(*condition.verified_at);
  if (condition.backed_up_at) *store.mutable_backup_time() = ToProto(*condition.backed_up_at);
}

}  // namespace

ControllerService::ControllerService(Environment environment)
    : environment_(std::move(environment)), start_(environment_.clock.Now()) {}

void ControllerService::SetAddresses(std::vector<std::string> addresses) {
  const MutexLock lock(mutex_);
  addresses_ = std::move(addresses);
}

std::vector<std::string> ControllerService::addresses() {
  const MutexLock lock(mutex_);
  return addresses_;
}

grpc::ServerUnaryReactor* ControllerService::GetController(grpc::CallbackServerContext* context,
                                                           const v1::GetControllerRequest* request,
                                                           v1::GetControllerResponse* response) {
  return Serve(context, *request, [&] {
    v1::Controller& controller = *response->mutable_controller();
    controller.set_version(std::string(Version()));
    controller.set_epoch(environment_.epoch);
    *controller.mutable_start_time() = ToProto(start_);
    *controller.mutable_time() = ToProto(environment_.clock.Now());
    for (const std::string& address : addresses()) controller.add_addresses(address);
    controller.set_metrics_address(environment_.metrics_address);
    controller.set_meshes(environment_.catalog.meshes.size());
    controller.set_manifests(environment_.catalog.manifests.size());
    controller.set_pipelines(environment_.catalog.pipelines.size());
    {
      const MutexLock lock(mutex_);
      ForgetSilentStandbys();
      for (const auto& [address, standby] : standbys_) *controller.add_standbys() = standby.shown;
    }
    v1::ControllerStore& store = *controller.mutable_store();
    store.set_kind(environment_.store_kind);
    store.set_revision(environment_.store.revision());
    if (environment_.upkeep != nullptr) Describe(environment_.upkeep->condition(), store);
    return absl::OkStatus();
  });
}

grpc::ServerUnaryReactor* ControllerService::ListLogLines(grpc::CallbackServerContext* context,
                                                          const v1::ListLogLinesRequest* request,
                                                          v1::ListLogLinesResponse* response) {
  return Serve(context, *request, [&]() -> absl::Status {
    const int32_t count = request->count() == 0 ? kLogLinesDefault : request->count();
    if (count < 1 || count > kLogLinesMax) {
      return absl::InvalidArgumentError(
          absl::StrCat("count: expected 1 to ", kLogLinesMax, ", found ", count));
    }
    for (std::string& line : LastLogLines(static_cast<size_t>(count))) {
      response->add_lines(std::move(line));
    }
    return absl::OkStatus();
  });
}

grpc::ServerUnaryReactor* ControllerService::BackUpStore(grpc::CallbackServerContext* context,
                                                         const v1::BackUpStoreRequest* /*request*/,
                                                         v1::BackUpStoreResponse* response) {
  return WithUpkeep(context, [response](StoreUpkeep& upkeep) -> absl::Status {
    ASSIGN_OR_RETURN(*response->mutable_file(), upkeep.BackUp());
    return absl::OkStatus();
  });
}

grpc::ServerUnaryReactor* ControllerService::VerifyStore(grpc::CallbackServerContext* context,
                                                         const v1::VerifyStoreRequest* /*request*/,
                                                         v1::VerifyStoreResponse* response) {
  return WithUpkeep(context, [this, response](StoreUpkeep& upkeep) {
    response->set_revision(environment_.store.revision());
    return upkeep.Verify();
  });
}

grpc::ServerUnaryReactor* ControllerService::ReleaseStoreReserve(
    grpc::CallbackServerContext* context, const v1::ReleaseStoreReserveRequest* /*request*/,
    v1::ReleaseStoreReserveResponse* /*response*/) {
  return WithUpkeep(context, [](StoreUpkeep& upkeep) { return upkeep.ReleaseReserve(); });
}

grpc::ServerUnaryReactor* ControllerService::ReportStandby(
    grpc::CallbackServerContext* context, const v1::ReportStandbyRequest* request,
    v1::ReportStandbyResponse* /*response*/) {
  return Serve(context, *request, [&]() -> absl::Status {
    const v1::StandbyController& standby = request->standby();
    if (const auto address = ParseRpcAddress(standby.address()); !address.ok()) {
      return At("standby.address", address.status());
    }
    const MutexLock lock(mutex_);
    ForgetSilentStandbys();
    if (standbys_.size() == kStandbysMax && !standbys_.contains(standby.address())) {
      return absl::ResourceExhaustedError(
          absl::StrCat("standbys: expected at most ", kStandbysMax, ", found another one"));
    }
    standbys_[standby.address()] = {.shown = standby, .heard = environment_.clock.Monotonic()};
    return absl::OkStatus();
  });
}

void ControllerService::ForgetSilentStandbys() {
  const absl::Duration now = environment_.clock.Monotonic();
  std::erase_if(standbys_,
                [now](const auto& entry) { return now - entry.second.heard > kStandbySilenceMax; });
}

grpc::ServerUnaryReactor* ControllerService::WithUpkeep(
    grpc::CallbackServerContext* context, std::function<absl::Status(StoreUpkeep&)> work) {
  StoreUpkeep* const upkeep = environment_.upkeep;
  if (upkeep == nullptr) {
    return Answer(context, absl::FailedPreconditionError(absl::StrCat(
                               "store: expected one in a folder, as of --state-dir, found one in ",
                               environment_.store_kind)));
  }
  return ServeAtPlanner(context, environment_.planners, /*cost=*/0,
                        [upkeep, work = std::move(work)](const auto& end) { end(work(*upkeep)); });
}

}  // namespace crossmesh

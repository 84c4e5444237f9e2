#pragma once

#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "crossmesh/v1/controller_service.grpc.pb.h"

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/time/time.h>

namespace crossmesh {

class MetadataStore;
class PlanningQueue;
class StoreUpkeep;
struct Catalog;

// What a controller is and how its store does, for operators. Thread-safe.
class ControllerService final : public v1::ControllerService::CallbackService {
 public:
  static constexpr int32_t kLogLinesMax = 1000;

  // All outlive it.
  struct Environment {
    Catalog& catalog;
    const MetadataStore& store;
    const Clock& clock;
    PlanningQueue& planners;  // for what takes long
    uint64_t epoch = 0;
    std::string store_kind;
    StoreUpkeep* upkeep = nullptr;  // null: the store is in no folder
    std::string metrics_address;
  };
  explicit ControllerService(Environment environment);

  // Once they are bound.
  void SetAddresses(std::vector<std::string> addresses);

  grpc::ServerUnaryReactor* GetController(grpc::CallbackServerContext* context,
                                          const v1::GetControllerRequest* request,
                                          v1::GetControllerResponse* response) override;
  grpc::ServerUnaryReactor* ListLogLines(grpc::CallbackServerContext* context,
                                         const v1::ListLogLinesRequest* request,
                                         v1::ListLogLinesResponse* response) override;
  grpc::ServerUnaryReactor* BackUpStore(grpc::CallbackServerContext* context,
                                        const v1::BackUpStoreRequest* request,
                                        v1::BackUpStoreResponse* response) override;
  grpc::ServerUnaryReactor* VerifyStore(grpc::CallbackServerContext* context,
                                        const v1::VerifyStoreRequest* request,
                                        v1::VerifyStoreResponse* response) override;
  grpc::ServerUnaryReactor* ReleaseStoreReserve(grpc::CallbackServerContext* context,
                                                const v1::ReleaseStoreReserveRequest* request,
                                                v1::ReleaseStoreReserveResponse* response) override;
  grpc::ServerUnaryReactor* ReportStandby(grpc::CallbackServerContext* context,
                                          const v1::ReportStandbyRequest* request,
                                          v1::ReportStandbyResponse* response) override;

 private:
  std::vector<std::string> addresses();
  void ForgetSilentStandbys() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Has `work` done where it may take long, if there is a store for it.
  grpc::ServerUnaryReactor* WithUpkeep(grpc::CallbackServerContext* context,
                                       std::function<absl::Status(StoreUpkeep&)> work);

  const Environment environment_;
  const absl::Time start_;
  Mutex mutex_;
  std::vector<std::string> addresses_ ABSL_GUARDED_BY(mutex_);
  struct Standby {
    v1::StandbyController shown;
    absl::Duration heard;  // monotonic
  };
  std::map<std::string, Standby> standbys_ ABSL_GUARDED_BY(mutex_);  // by address
};

}  // namespace crossmesh

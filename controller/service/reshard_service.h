#pragma once

#include "controller/dispatch/operation_runner.h"
#include "controller/service/operation_registry.h"
#include "controller/service/reshard_planner.h"
#include "crossmesh/v1/reshard_service.grpc.pb.h"

#include <atomic>
#include <string>

namespace crossmesh {

// Plans and executes reshards. Thread-safe.
class ReshardService final : public v1::ReshardService::CallbackService {
 public:
  struct Options {
    ReshardPlanner& planner;
    OperationRegistry& registry;
    OperationRunner& runner;
    TaskQueue& planners;
    ControllerMetrics& metrics;
  };
  explicit ReshardService(const Options& options) : options_(options) {}

  // From now on new operations are refused, with Unavailable.
  void RefuseOperations() { refusing_ = true; }

  grpc::ServerUnaryReactor* PlanReshard(grpc::CallbackServerContext* context,
                                        const v1::PlanReshardRequest* request,
                                        v1::PlanReshardResponse* response) override;
  grpc::ServerWriteReactor<v1::ExecuteReshardResponse>* ExecuteReshard(
      grpc::CallbackServerContext* context, const v1::ExecuteReshardRequest* request) override;

 private:
  // The id of the operation, begun now or before.
  absl::StatusOr<std::string> Begin(const v1::ExecuteReshardRequest& request);
  absl::StatusOr<OperationRequest> RequestOf(const v1::ReshardSpec& spec);
  absl::Status Plan(const ReshardPlanner::Ticket& ticket, const v1::PlanReshardRequest& request,
                    CancelCheck cancelled, v1::PlanReshardResponse& response);

  const Options options_;
  std::atomic<bool> refusing_ = false;
};

}  // namespace crossmesh

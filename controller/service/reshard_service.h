#pragma once

#include "controller/dispatch/running_table.h"
#include "controller/service/reshard_planner.h"
#include "controller/service/run_registry.h"
#include "crossmesh/v1/reshard_service.grpc.pb.h"

#include <string>

namespace crossmesh {

class RunningOperation;
struct OperationRequest;

// Plans and executes reshards. Thread-safe.
class ReshardService final : public v1::ReshardService::CallbackService {
 public:
  struct Options {
    ReshardPlanner& planner;
    RunRegistry<v1::Operation>& registry;
    RunningTable<RunningOperation>& running;
    TaskQueue& planners;
    ControllerMetrics& metrics;
  };
  explicit ReshardService(const Options& options) : options_(options) {}

  grpc::ServerUnaryReactor* PlanReshard(grpc::CallbackServerContext* context,
                                        const v1::PlanReshardRequest* request,
                                        v1::PlanReshardResponse* response) override;
  grpc::ServerWriteReactor<v1::ExecuteReshardResponse>* ExecuteReshard(
      grpc::CallbackServerContext* context, const v1::ExecuteReshardRequest* request) override;

 private:
  // The id of the operation, begun now or before.
  absl::StatusOr<std::string> Begin(const v1::ExecuteReshardRequest& request);
  // Of a new operation, which the entry names.
  absl::StatusOr<OperationRequest> RequestOf(const v1::ReshardSpec& spec,
                                             RunRegistry<v1::Operation>::Entry entry);
  absl::Status Plan(const ReshardPlanner::Ticket& ticket, const v1::PlanReshardRequest& request,
                    CancelCheck cancelled, v1::PlanReshardResponse& response);

  const Options options_;
};

}  // namespace crossmesh

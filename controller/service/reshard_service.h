#pragma once

#include "controller/requests/bulk_service.h"
#include "crossmesh/v1/reshard_service.grpc.pb.h"

#include <cstdint>
#include <string>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

namespace crossmesh {

class ControllerMetrics;
class PlannedReshard;
class PlanningQueue;
class ReshardPlanner;
class RunningOperation;
struct OperationRequest;
template <typename Subject>
class JobRegistry;
template <typename Running>
class RunningTable;

// Plans and executes reshards. Thread-safe.
class ReshardService final : public BulkService<v1::ReshardService> {
 public:
  struct Options {
    RequestBudget& budget;
    ReshardPlanner& planner;
    JobRegistry<v1::Operation>& registry;
    RunningTable<RunningOperation>& running;
    PlanningQueue& planners;
    ControllerMetrics& metrics;
  };
  explicit ReshardService(const Options& options);

  // Takes up the operations that a former controller has left, before any client can ask for more.
  // The store's errors; DataLoss: an operation's record does not parse.
  absl::Status TakeUp();

 private:
  using PlanRequest = BulkRequest<v1::PlanReshardRequest>;
  using ExecuteRequest = BulkRequest<v1::ExecuteReshardRequest>;

  grpc::ServerUnaryReactor* Plan(grpc::CallbackServerContext* context, const PlanRequest& request,
                                 v1::PlanReshardResponse* response);
  // The id of the operation, begun now or before.
  absl::StatusOr<std::string> Begin(const absl::StatusOr<ExecuteRequest>& received,
                                    const std::string& client);
  // Of a new operation with this number, which is shown as `first`.
  absl::StatusOr<OperationRequest> RequestOf(const ExecuteRequest& request, v1::Operation first,
                                             uint64_t number);
  // `cached`: before this request.
  absl::Status Tell(const PlannedReshard& planned, bool cached,
                    const v1::PlanReshardRequest& request, v1::PlanReshardResponse& response);

  const Options options_;
};

}  // namespace crossmesh

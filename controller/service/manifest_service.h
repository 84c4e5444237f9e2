#pragma once

#include "controller/requests/bulk_service.h"
#include "crossmesh/v1/manifest_service.grpc.pb.h"

namespace crossmesh {

class ControllerMetrics;
class ReshardPlanner;
struct Catalog;

// Tensor manifests by name. Thread-safe.
class ManifestService final : public BulkService<v1::ManifestService> {
 public:
  // Tensors of one message.
  static constexpr int kTensorsPerMessageMax = 4096;

  // The planner forgets plans of what is deleted.
  ManifestService(RequestBudget& budget, Catalog& catalog, ReshardPlanner& planner,
                  ControllerMetrics& metrics);

  grpc::ServerWriteReactor<v1::GetManifestResponse>* GetManifest(
      grpc::CallbackServerContext* context, const v1::GetManifestRequest* request) override;
  grpc::ServerUnaryReactor* ListManifests(grpc::CallbackServerContext* context,
                                          const v1::ListManifestsRequest* request,
                                          v1::ListManifestsResponse* response) override;
  grpc::ServerUnaryReactor* DeleteManifest(grpc::CallbackServerContext* context,
                                           const v1::DeleteManifestRequest* request,
                                           v1::DeleteManifestResponse* response) override;

 private:
  Catalog& catalog_;
  ReshardPlanner& planner_;
  ControllerMetrics& metrics_;
};

}  // namespace crossmesh

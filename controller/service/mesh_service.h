#pragma once

#include "crossmesh/v1/mesh_service.grpc.pb.h"

namespace crossmesh {

class ControllerMetrics;
class ReshardPlanner;
struct Catalog;

// Meshes by name. Thread-safe.
class MeshService final : public v1::MeshService::CallbackService {
 public:
  // The planner forgets plans of what is deleted.
  MeshService(Catalog& catalog, ReshardPlanner& planner, ControllerMetrics& metrics)
      : catalog_(catalog), planner_(planner), metrics_(metrics) {}

  grpc::ServerUnaryReactor* CreateMesh(grpc::CallbackServerContext* context,
                                       const v1::CreateMeshRequest* request,
                                       v1::CreateMeshResponse* response) override;
  grpc::ServerUnaryReactor* GetMesh(grpc::CallbackServerContext* context,
                                    const v1::GetMeshRequest* request,
                                    v1::GetMeshResponse* response) override;
  grpc::ServerUnaryReactor* ListMeshes(grpc::CallbackServerContext* context,
                                       const v1::ListMeshesRequest* request,
                                       v1::ListMeshesResponse* response) override;
  grpc::ServerUnaryReactor* DeleteMesh(grpc::CallbackServerContext* context,
                                       const v1::DeleteMeshRequest* request,
                                       v1::DeleteMeshResponse* response) override;

 private:
  Catalog& catalog_;
  ReshardPlanner& planner_;
  ControllerMetrics& metrics_;
};

}  // namespace crossmesh

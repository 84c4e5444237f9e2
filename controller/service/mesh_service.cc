#include "controller/service/mesh_service.h"

#include "common/base/error_place.h"
#include "common/base/status_macros.h"
#include "common/metrics/controller_metrics.h"
#include "common/wire/object_name.h"
#include "common/wire/tensor_codec.h"
#include "controller/catalog/catalog.h"
#include "controller/service/paging.h"
#include "controller/service/reshard_planner.h"
#include "controller/service/unary.h"

#include <utility>

#include <absl/strings/str_cat.h>

namespace crossmesh {

// A mesh that is created again is the same mesh, so a repeated request needs no memory of its id.
grpc::ServerUnaryReactor* MeshService::CreateMesh(grpc::CallbackServerContext* context,
                                                  const v1::CreateMeshRequest* request,
                                                  v1::CreateMeshResponse* response) {
  return Serve(context, *request, [&]() -> absl::Status {
    const std::string& name = request->mesh().name();
    RETURN_IF_ERROR(CheckObjectName("mesh", name));
    if (!request->request_id().empty()) RETURN_IF_ERROR(CheckRequestId(request->request_id()));
    ASSIGN_OR_RETURN(Mesh mesh, At(absl::StrCat("mesh ", name), FromProto(request->mesh())));
    ASSIGN_OR_RETURN(const int64_t revision, catalog_.meshes.Put(name, std::move(mesh)));
    response->set_revision(revision);
    metrics_.SetObjects(ObjectKind::kMesh, catalog_.meshes.size());
    return absl::OkStatus();
  });
}

grpc::ServerUnaryReactor* MeshService::GetMesh(grpc::CallbackServerContext* context,
                                               const v1::GetMeshRequest* request,
                                               v1::GetMeshResponse* response) {
  return Serve(context, *request, [&]() -> absl::Status {
    ASSIGN_OR_RETURN(const Registered<Mesh> mesh, catalog_.meshes.Get(request->name()));
    *response->mutable_mesh() = ToProto(*mesh.value, mesh.name);
    response->set_revision(mesh.revision);
    return absl::OkStatus();
  });
}

grpc::ServerUnaryReactor* MeshService::ListMeshes(grpc::CallbackServerContext* context,
                                                  const v1::ListMeshesRequest* request,
                                                  v1::ListMeshesResponse* response) {
  return Serve(context, *request, [&] {
    return ListObjects(catalog_.meshes, *request, *response, [&](const Registered<Mesh>& mesh) {
      *response->add_meshes() = ToProto(*mesh.value, mesh.name);
    });
  });
}

grpc::ServerUnaryReactor* MeshService::DeleteMesh(grpc::CallbackServerContext* context,
                                                  const v1::DeleteMeshRequest* request,
                                                  v1::DeleteMeshResponse* /*response*/) {
  return Serve(context, *request, [&]() -> absl::Status {
    ASSIGN_OR_RETURN(const int64_t deleted,
                     catalog_.meshes.Delete(request->name(), request->revision()));
    planner_.Forget(deleted);
    metrics_.SetObjects(ObjectKind::kMesh, catalog_.meshes.size());
    return absl::OkStatus();
  });
}

}  // namespace crossmesh

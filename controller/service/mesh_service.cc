#include "controller/service/mesh_service.h"

#include "common/base/status_macros.h"
#include "common/rpc/server.h"
#include "common/wire/object_name.h"
#include "common/wire/tensor_codec.h"
#include "controller/service/object_count.h"
#include "controller/service/paging.h"
#include "controller/service/unary.h"

#include <utility>

namespace crossmesh {

grpc::ServerUnaryReactor* MeshService::CreateMesh(grpc::CallbackServerContext* context,
                                                  const v1::CreateMeshRequest* request,
                                                  v1::CreateMeshResponse* response) {
  return Answer(context, Create(*request, *response));
}

// A mesh that is created again is the same mesh, so a repeated request needs no memory of its id.
absl::Status MeshService::Create(const v1::CreateMeshRequest& request,
                                 v1::CreateMeshResponse& response) {
  RETURN_IF_ERROR(CheckRequestBytes(request));
  RETURN_IF_ERROR(CheckObjectName("mesh", request.mesh().name()));
  if (!request.request_id().empty()) RETURN_IF_ERROR(CheckRequestId(request.request_id()));
  absl::StatusOr<Mesh> mesh = FromProto(request.mesh());
  if (!mesh.ok()) {
    return absl::Status(mesh.status().code(), absl::StrCat("mesh ", request.mesh().name(), ": ",
                                                           mesh.status().message()));
  }
  ASSIGN_OR_RETURN(const int64_t revision,
                   catalog_.meshes.Put(request.mesh().name(), *std::move(mesh)));
  response.set_revision(revision);
  metrics_.SetObjects(ObjectKind::kMesh, CountObjects(catalog_.meshes));
  return absl::OkStatus();
}

grpc::ServerUnaryReactor* MeshService::GetMesh(grpc::CallbackServerContext* context,
                                               const v1::GetMeshRequest* request,
                                               v1::GetMeshResponse* response) {
  return Answer(context, Get(*request, *response));
}

absl::Status MeshService::Get(const v1::GetMeshRequest& request, v1::GetMeshResponse& response) {
  RETURN_IF_ERROR(CheckRequestBytes(request));
  ASSIGN_OR_RETURN(const Registered<Mesh> mesh, catalog_.meshes.Get(request.name()));
  *response.mutable_mesh() = ToProto(*mesh.value, mesh.name);
  response.set_revision(mesh.revision);
  return absl::OkStatus();
}

grpc::ServerUnaryReactor* MeshService::ListMeshes(grpc::CallbackServerContext* context,
                                                  const v1::ListMeshesRequest* request,
                                                  v1::ListMeshesResponse* response) {
  return Answer(context, List(*request, *response));
}

absl::Status MeshService::List(const v1::ListMeshesRequest& request,
                               v1::ListMeshesResponse& response) {
  RETURN_IF_ERROR(CheckRequestBytes(request));
  ASSIGN_OR_RETURN(const int32_t limit, PageSize(request.page_size()));
  ASSIGN_OR_RETURN(const auto meshes, catalog_.meshes.List(request.page_token(), limit));
  for (const Registered<Mesh>& mesh : meshes) {
    *response.add_meshes() = ToProto(*mesh.value, mesh.name);
  }
  if (response.meshes_size() == limit) response.set_next_page_token(meshes.back().name);
  return absl::OkStatus();
}

grpc::ServerUnaryReactor* MeshService::DeleteMesh(grpc::CallbackServerContext* context,
                                                  const v1::DeleteMeshRequest* request,
                                                  v1::DeleteMeshResponse* /*response*/) {
  return Answer(context, Delete(*request));
}

absl::Status MeshService::Delete(const v1::DeleteMeshRequest& request) {
  RETURN_IF_ERROR(CheckRequestBytes(request));
  RETURN_IF_ERROR(catalog_.meshes.Delete(request.name(), request.revision()));
  metrics_.SetObjects(ObjectKind::kMesh, CountObjects(catalog_.meshes));
  return absl::OkStatus();
}

}  // namespace crossmesh

#pragma once

#include "client/client.h"
#include "common/base/mutex.h"
#include "common/rpc/controller_route.h"
#include "crossmesh/v1/controller_service.grpc.pb.h"
#include "crossmesh/v1/manifest_service.grpc.pb.h"
#include "crossmesh/v1/mesh_service.grpc.pb.h"
#include "crossmesh/v1/network_service.grpc.pb.h"
#include "crossmesh/v1/operation_service.grpc.pb.h"
#include "crossmesh/v1/pipeline_service.grpc.pb.h"
#include "crossmesh/v1/reshard_service.grpc.pb.h"
#include "crossmesh/v1/worker_service.grpc.pb.h"

#include <map>
#include <memory>
#include <string>
#include <vector>

#include <absl/base/thread_annotations.h>
#include <absl/functional/function_ref.h>
#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <grpcpp/channel.h>

namespace crossmesh {

// The services of one controller.
struct Client::Stubs {
  explicit Stubs(std::shared_ptr<grpc::Channel> connection);

  const std::shared_ptr<grpc::Channel> channel;
  const std::unique_ptr<v1::ControllerService::Stub> controllers;
  const std::unique_ptr<v1::MeshService::Stub> meshes;
  const std::unique_ptr<v1::ManifestService::Stub> manifests;
  const std::unique_ptr<v1::NetworkService::Stub> networks;
  const std::unique_ptr<v1::ReshardService::Stub> reshards;
  const std::unique_ptr<v1::OperationService::Stub> operations;
  const std::unique_ptr<v1::PipelineService::Stub> pipelines;
  const std::unique_ptr<v1::WorkerService::Stub> workers;
};

// The controllers of a cluster, of which one leads and is asked. Of several, a connection that says
// nothing is noticed within seconds, since another one may lead by then. Thread-safe.
class Client::Controllers {
 public:
  // `addresses`: at least one.
  Controllers(std::vector<std::string> addresses, bool insecure);

  // InvalidArgument: one of them is not local without `insecure`, or has no port.
  absl::Status Check();
  bool several() const { return several_; }

  // Calls the one that is to be asked now, and remembers by how that ends which one is to be asked
  // next. Unavailable: it cannot be reached.
  absl::Status Call(absl::FunctionRef<absl::Status(Stubs&)> call);

 private:
  absl::StatusOr<std::shared_ptr<Stubs>> StubsOf(const std::string& address);
  absl::Status CallAt(const std::string& address, absl::FunctionRef<absl::Status(Stubs&)> call);

  const std::vector<std::string> addresses_;
  const bool several_;
  const bool insecure_;

  Mutex mutex_;
  ControllerRoute route_ ABSL_GUARDED_BY(mutex_);
  // Each stays as long as the client: a channel connects again by itself. By address.
  std::map<std::string, std::shared_ptr<Stubs>> stubs_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace crossmesh

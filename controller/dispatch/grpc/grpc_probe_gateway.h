#pragma once

#include "common/base/mutex.h"
#include "controller/dispatch/probe_gateway.h"
#include "crossmesh/v1/probe_service.grpc.pb.h"

#include <memory>
#include <string>

#include <absl/container/flat_hash_map.h>
#include <absl/container/flat_hash_set.h>
#include <absl/status/statusor.h>
#include <grpcpp/client_context.h>

namespace crossmesh {

// Reaches workers' probes over gRPC, one channel per address. Thread-safe; never blocks.
class GrpcProbeGateway final : public ProbeGateway {
 public:
  // `insecure` allows addresses that are not local.
  explicit GrpcProbeGateway(bool insecure) : insecure_(insecure) {}
  // As Stop.
  ~GrpcProbeGateway() override { Stop(); }

  void Open(const std::string& worker_address, const ProbeOpening& opening,
            OnOpened on_opened) override;
  void Run(const std::string& worker_address, const ProbeRun& run, OnResult on_result) override;

  // Breaks all calls off, and returns when every callback has been called. Repeatable. Calls end at
  // once from now on. Blocks.
  void Stop();

 private:
  using Stub = v1::ProbeService::Stub;
  template <typename Request, typename Response>
  struct Call;

  absl::StatusOr<std::shared_ptr<Stub>> StubFor(const std::string& address);
  // False: stopped.
  bool Enter(const std::shared_ptr<grpc::ClientContext>& context);
  void Leave(const std::shared_ptr<grpc::ClientContext>& context);

  const bool insecure_;

  Mutex mutex_;
  CondVar empty_;
  absl::flat_hash_map<std::string, std::shared_ptr<Stub>> stubs_ ABSL_GUARDED_BY(mutex_);
  // Of calls in progress.
  absl::flat_hash_set<std::shared_ptr<grpc::ClientContext>> calls_ ABSL_GUARDED_BY(mutex_);
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace crossmesh

#pragma once

#include "common/base/mutex.h"
#include "crossmesh/v1/probe_service.grpc.pb.h"

#include <vector>

#include <absl/status/status.h>
#include <absl/time/time.h>

namespace crossmesh {

// A worker's probes that send nothing: all find what they are told to find. Thread-safe.
class FakeProbes final : public v1::ProbeService::CallbackService {
 public:
  // What every probe from here finds from now on.
  void SetResult(absl::Status status, int64_t bytes_per_second, absl::Duration round_trip);
  // Probes from here wait from now on.
  void Hold();
  // Those that wait, and all later ones, go on.
  void Release();
  void WaitUntilHolding();

  grpc::ServerUnaryReactor* OpenProbe(grpc::CallbackServerContext* context,
                                      const v1::OpenProbeRequest* request,
                                      v1::OpenProbeResponse* response) override;
  grpc::ServerUnaryReactor* RunProbe(grpc::CallbackServerContext* context,
                                     const v1::RunProbeRequest* request,
                                     v1::RunProbeResponse* response) override;

 private:
  Mutex mutex_;
  CondVar changed_;
  bool holding_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<grpc::ServerUnaryReactor*> held_ ABSL_GUARDED_BY(mutex_);
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
  v1::RunProbeResponse result_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace crossmesh
